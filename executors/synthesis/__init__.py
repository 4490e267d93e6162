"""Synthetic inputs for networks whose training data are not available."""

"""Slices of a package's supernet, cut on a device for a task and limits of its own (NN-Factory 3.4, 3.5)."""

"""Policies, which choose the current option."""

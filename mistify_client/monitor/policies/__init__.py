"""Policies, which choose the branch that runs."""

"""Policies, which choose the option that runs."""

"""Policies: which branch runs."""

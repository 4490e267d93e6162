"""Asking the server for a new package when no branch fits, and trying it."""

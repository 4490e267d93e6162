"""Calls to a server, and trying them again."""

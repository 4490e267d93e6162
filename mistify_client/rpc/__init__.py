"""Calls to a server, with retries."""

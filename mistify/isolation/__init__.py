"""Calls in a separate process, for native code that may crash."""

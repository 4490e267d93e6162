"""Calls in a process of their own, for native code that may abort its process."""

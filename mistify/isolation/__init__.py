"""Calls in a process of their own, for what may end its process: native code that aborts."""

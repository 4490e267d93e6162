"""Cutting channel groups: the least important units go, and the remaining ones take over."""

"""Cutting channel groups: what is worth least goes, and what stays takes over."""

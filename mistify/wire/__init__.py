"""Conversion of domain objects to protocol buffer messages and back."""

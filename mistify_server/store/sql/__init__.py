"""Implementations of the store's interfaces in a relational database."""

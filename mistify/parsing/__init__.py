"""Parsers for people's input: JSON with comments, quantities with units, and errors that name their place."""

"""Parsers for user input: JSON with comments, quantities with units, and errors with paths."""

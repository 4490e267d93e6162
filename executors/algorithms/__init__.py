"""Adaptation algorithms, one folder each."""

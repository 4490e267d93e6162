"""Inputs made for networks whose data nobody has."""

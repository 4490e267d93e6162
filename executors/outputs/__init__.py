"""Objectives and scores of a network's outputs."""

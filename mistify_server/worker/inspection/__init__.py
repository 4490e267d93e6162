"""Inspection of models and data before anything is started."""

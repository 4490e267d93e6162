"""Inspection of models and data before a job starts."""

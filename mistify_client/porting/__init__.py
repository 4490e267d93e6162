"""Submitting jobs, following them, and reporting what came of them."""

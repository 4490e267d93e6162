"""Submission of jobs, their progress, and reports of their results."""

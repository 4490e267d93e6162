"""Porting server: API, planning, jobs, store, and the workers that train."""

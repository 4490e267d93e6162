"""The porting server: API, planning, jobs, store and training workers."""

"""Web pages for the same services: jobs, goals, plans, devices, groups."""

"""Pages for people, over the same services: jobs, goals, plans, devices, groups."""

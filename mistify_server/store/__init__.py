"""What the server remembers: jobs and checkpoints in SQL, models and packages as files."""

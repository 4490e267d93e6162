"""The server's store: jobs and checkpoints in SQL, models and packages as files."""

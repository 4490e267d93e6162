"""The server's store: jobs and results in SQL; models, checkpoints and packages as files."""

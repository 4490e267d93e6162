"""Who calls the server, and what they may do."""

"""Tasks and results, shared by the server and its workers."""

"""The background path: requests to the server for a new package when no branch fits, and its trial."""

"""The background path: requests to the server for a new package when no option fits, and its trial."""

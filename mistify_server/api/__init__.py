"""The server's gRPC API: thin servicers, authentication, errors as statuses."""

"""The server's gRPC face: thin servicers, authentication, errors as statuses."""

"""HTTP: REST and server-sent events over the services that gRPC has, too."""

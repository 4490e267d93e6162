"""HTTP: a REST API, server-sent events and web pages, with the same services as gRPC."""

"""The porting server: API, architecture adaptor, store and the worker that trains."""

"""SQLite implementations of the store's interfaces."""

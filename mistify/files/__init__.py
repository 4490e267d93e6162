"""Files on disk: atomic and durable writes, locks, and locations."""

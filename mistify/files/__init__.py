"""Files on disk: writing so that a power cut loses nothing, locks, and places."""

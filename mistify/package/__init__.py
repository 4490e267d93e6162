"""The content of a package: its manifest, its weights, and the record of its training network."""

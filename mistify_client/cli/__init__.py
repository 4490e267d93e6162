"""The command `mistify`."""

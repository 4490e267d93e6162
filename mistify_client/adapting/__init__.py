"""Adaptation of a package to the data of a device, without labels, while apps use the package."""

"""Adaptation of a package to the data of its place, without labels and next to the apps that use it."""

"""Staged roll-outs of packages to the fleet: members, stages, limits, and the service."""

"""Subnets of a block store on a device: measured, searched on its data, kept in a pool (AdaptiveNet 5)."""

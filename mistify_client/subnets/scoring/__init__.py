"""The scores of subnets on the data of a device, with shared parts run once (AdaptiveNet 5.2)."""

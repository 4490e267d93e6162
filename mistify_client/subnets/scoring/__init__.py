"""The scores of subnets on the data of a device; shared parts run only once (AdaptiveNet 5.2)."""

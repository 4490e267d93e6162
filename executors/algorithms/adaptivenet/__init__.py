"""AdaptiveNet: a supernet of blocks that replace each other, for subnets of any size (AdaptiveNet 4)."""

"""Networks of blocks on a device: stitched into one file, or run as a chain, with only a few in memory."""

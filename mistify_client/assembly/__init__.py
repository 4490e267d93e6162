"""Networks of blocks on a device: stitched into one file, or chained, with a few of them in memory."""

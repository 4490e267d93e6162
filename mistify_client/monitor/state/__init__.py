"""Files that a monitor keeps on disk: targets, log, status and lock."""

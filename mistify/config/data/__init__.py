"""The `dataset` of a config: the data, their metrics and losses, and the targets."""

"""The `dataset` of a config: the data, their metrics and losses, and what is to be reached on them."""

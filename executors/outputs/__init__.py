"""The outputs of a network: what each learns, and how it is scored."""

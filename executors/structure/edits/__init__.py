"""Changes of a model's structure: widths, depth, resolution, and cutting it in two."""

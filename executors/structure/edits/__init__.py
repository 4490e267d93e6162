"""Changes to a model's structure: widths, depth, resolution, and splitting it in two."""

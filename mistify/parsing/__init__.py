"""Reading what people write: JSON with comments, quantities with units, and errors that name their place."""

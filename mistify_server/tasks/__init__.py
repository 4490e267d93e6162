"""Tasks for workers and their results, as both sides know them."""

"""The edges of a goal tree (paper 4.3), from its root to the branches of a package."""

"""The architecture adaptor (paper 4.3): from goals to a tree, from the tree to adapted models."""

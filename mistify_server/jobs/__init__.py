"""Running jobs: the tree's steps in their order, what is kept of each, and who watches."""

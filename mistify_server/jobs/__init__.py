"""Running jobs: the steps of the trees in order, their log, and the watchers."""

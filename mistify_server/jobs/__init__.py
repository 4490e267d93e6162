"""Running jobs: the steps of their goal trees, their log and their watchers."""

"""Information for the operator of a running server: figures for Prometheus, and its log."""

"""What a running server tells whoever runs it: figures for Prometheus, and its log."""

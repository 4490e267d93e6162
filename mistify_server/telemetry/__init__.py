"""Telemetry for the operator of a running server: Prometheus metrics and the log."""

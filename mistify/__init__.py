"""Definitions shared by server and client: configs, costs, goals, manifests, errors."""

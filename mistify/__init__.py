"""The vocabulary that server and client share: configs, costs, goals, manifests, errors."""

"""The search for the best subnet within a latency: moves, strategies, candidates (AdaptiveNet 5.1)."""

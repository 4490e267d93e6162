"""From configs to a plan: what names stand for, goal trees, limits, precisions and forecasts."""

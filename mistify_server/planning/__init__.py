"""From configs to a plan: resolution, inspection, limits, precisions, goal trees and forecasts."""

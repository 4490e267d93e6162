"""Planning: turns configs into plans by resolution, inspection, limit checks, goal trees and forecasts."""

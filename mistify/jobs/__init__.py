"""Jobs, their plans, and the goal tree (paper 4.3)."""

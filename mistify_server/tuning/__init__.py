"""The coordinator of tuning with peers (paper 5.2): groups, published models, and correlated members."""

"""The coordinator of tuning with peers (paper 5.2): groups, published models, who is correlated with whom."""

"""Costs of networks (paper 4.1): operators, precisions, hardware, budgets and the axes that goals limit."""

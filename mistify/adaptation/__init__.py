"""Adaptation of networks to data without labels, by the statistics of folded batch norms."""

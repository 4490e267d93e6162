"""Convolutions with gradients for LiteRT, laid out as matrix products."""

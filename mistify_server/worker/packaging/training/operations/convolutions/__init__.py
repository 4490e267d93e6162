"""Convolutions with gradients for LiteRT, expressed as matrix products."""

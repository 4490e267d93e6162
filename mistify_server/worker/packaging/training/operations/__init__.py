"""Replacements for TensorFlow operations whose gradients LiteRT lacks, one function per operation."""

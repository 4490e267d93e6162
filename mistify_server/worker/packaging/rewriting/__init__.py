"""Rewriting of TensorFlow graphs before conversion: operations that the converter decomposes badly."""

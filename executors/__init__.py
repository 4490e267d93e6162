"""Adaptation algorithms for Keras models, and the structure analysis and model surgery they use."""

"""Adaptation algorithms on Keras models, and the structure analysis and surgery that they stand on."""

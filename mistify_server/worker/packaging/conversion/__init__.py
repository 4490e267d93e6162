"""From Keras to LiteRT."""

"""TensorFlow operations whose gradients LiteRT lacks, one function for each, made of operations it has."""

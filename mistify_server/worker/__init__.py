"""The worker process, which inspects, trains, adapts and packages; the only server code with TensorFlow."""

"""The process that inspects, trains, adapts and packages; the only place that imports TensorFlow."""

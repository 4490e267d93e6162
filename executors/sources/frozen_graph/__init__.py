"""Graphs of TensorFlow operations, which can be run and packaged, but not edited."""

"""ONNX files as sources: each operator becomes Keras layers with channels last."""

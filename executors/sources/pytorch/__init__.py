"""PyTorch networks as sources: a call in a user's file makes a network, which is exported to ONNX."""

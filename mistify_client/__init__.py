"""The light client: LiteRT and gRPC, no TensorFlow."""

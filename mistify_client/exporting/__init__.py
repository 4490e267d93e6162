"""Export of packaged networks to ONNX, for devices with another runtime than LiteRT."""

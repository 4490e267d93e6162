"""`train.tflite`: a network that the plain LiteRT wheel trains on the device (paper 5.1).

`builtins` rebuilds TensorFlow graphs from what LiteRT has; `convolution`, `depthwise`, `pooling`,
`elementwise`, `indexing` and `products` say how, with gradients. `network` makes the signatures.
"""

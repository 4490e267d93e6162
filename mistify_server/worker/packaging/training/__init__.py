"""`train.tflite`: a network that the plain LiteRT wheel trains on the device (paper 5.1).

`builtins` rebuilds TensorFlow graphs from what LiteRT has; `convolution`, `depthwise`, `pooling`,
`elementwise`, `indexing` and `products` say how, with gradients. Trained convolutions are laid out by
`window_products`, or `column_pairs` where channels are few. `network` makes the signatures.
"""

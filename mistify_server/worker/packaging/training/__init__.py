"""`train.tflite`: a network that the standard LiteRT wheel can train on the device (paper 5.1).

`operations` rebuilds TensorFlow graphs, including gradients, from operations that LiteRT has: `builtins`
replaces one operation at a time. Trained convolutions (`operations.convolutions`) use `window_products`, or
`column_pairs` for few channels. `network` creates the signatures.
"""

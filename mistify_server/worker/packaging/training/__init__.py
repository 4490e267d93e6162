"""`train.tflite`: a network that the plain LiteRT wheel trains on the device (paper 5.1).

`operations` rebuilds TensorFlow graphs from what LiteRT has, with gradients: `builtins` replaces one
operation after the other. Trained convolutions (`operations.convolutions`) are laid out by `window_products`,
or `column_pairs` where channels are few. `network` makes the signatures.
"""

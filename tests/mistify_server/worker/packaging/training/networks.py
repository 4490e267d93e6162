"""Networks to be trained in LiteRT exactly as in TensorFlow: every family, and every layer separately.

Each layer is placed between layers with weights, so that gradients with respect to its inputs are needed too.
"""

import keras
import numpy as np

from executors.outputs.objectives import Categorical, Regression
from executors.structure import fold_batch_norm
from executors.structure.each_step import EachStep
from executors.structure.signature import Activation, output_names
from mistify.config.package.tuning import TuningConfig
from mistify_server.worker.packaging.training.network import TrainingNetwork, target_of, teacher_of
from mistify_server.worker.packaging.training.parts import trainable_weights
from tests.executors.structure.architectures import BROAD_FAMILIES, FAMILIES
from tests.executors.structure.networks import randomised, unmasked

layers = keras.layers
BATCH = 6


def _image(*middle, size=(9, 8)):
    inputs = keras.Input((*size, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", name="stem")(inputs)
    for layer in middle:
        x = layer(x)
    return keras.Model(inputs, layers.Dense(3, name="out")(layers.Flatten()(x)))


def _steps(*middle):
    inputs = keras.Input((5, 4), name="steps")
    x = layers.Dense(6, name="stem")(inputs)
    for layer in middle:
        x = layer(x)
    return keras.Model(inputs, layers.Dense(3, name="out")(layers.Flatten()(x)))


def _tokens(*middle):
    inputs = keras.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(7, 5, name="table")(inputs)
    for layer in middle:
        x = layer(x)
    return keras.Model(inputs, layers.Dense(3, name="out")(layers.Flatten()(x)))


def _attention(**options):
    asked, reported = keras.Input((4, 5), name="asked"), keras.Input((5, 7), name="told")
    x = layers.MultiHeadAttention(2, 3, 4, name="attention", **options)(
        layers.Dense(6, name="x")(asked), layers.Dense(8, name="y")(reported)
    )
    return keras.Model([asked, reported], layers.Dense(3, name="out")(x))


def _transformer():
    inputs = keras.Input((5, 4), name="steps")
    x = layers.Dense(6)(inputs)
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 3)(y, y)])
    y = layers.Dense(6)(layers.Dense(9, activation="gelu")(layers.LayerNormalization()(x)))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(layers.Add()([x, y]))))


def _pre_activation():
    inputs = keras.Input((6, 6, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    y = layers.Conv2D(4, 3, padding="same")(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Add()([x, y])))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def _sliced():
    inputs = keras.Input((7, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    parts = [x[:, 1:6:2, ::3], x[:, 2:5, 1:4], x[:, 6:0:-2, -3:], x[:, :3, :3, :]]
    x = layers.Concatenate()([*parts, layers.Reshape((3, 3, 1))(x[:, 1:4, 2:5, 0])])
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def _wide_kernels():
    """Return convolutions with kernels larger than the image, and a stride larger than the kernel."""
    inputs = keras.Input((4, 5, 2), name="image")
    x = layers.Conv2D(4, 5, padding="same")(inputs)
    x = layers.Conv2D(4, 2, strides=3, padding="same")(x)
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


_ACTIVATIONS = (
    *("celu", "elu", "exponential", "gelu", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu", "linear"),
    *(
        "log_sigmoid",
        "log_softmax",
        "mish",
        "relu",
        "relu6",
        "selu",
        "sigmoid",
        "silu",
        "softmax",
        "softplus",
    ),
    *("softsign", "tanh", "tanh_shrink"),
)
_CONVOLUTIONS = {
    f"{kind} {kernel} {padding} stride {strides} dilation {dilation}": (
        lambda make=make, kernel=kernel, padding=padding, strides=strides, dilation=dilation: _image(
            make(kernel, strides=strides, padding=padding, dilation_rate=dilation)
        )
    )
    for kind, make in {
        "convolution": lambda kernel, **options: layers.Conv2D(5, kernel, **options),
        "grouped": lambda kernel, **options: layers.Conv2D(6, kernel, groups=2, **options),
        "depthwise": lambda kernel, **options: layers.DepthwiseConv2D(
            kernel if isinstance(kernel, int) else kernel[0], depth_multiplier=2, **options
        ),
    }.items()
    for kernel, strides, dilation in (
        *((1, 1, 1), (1, 2, 1), (2, 1, 1), (3, 1, 1), (3, 2, 1), (3, 3, 1), (4, 3, 1)),
        *((3, 1, 2), (2, 1, 3), ((3, 2), 2, 1), ((1, 3), 1, 1)),
    )
    for padding in ("same", "valid")
}
_WINDOWS = {
    **{
        f"transposed {kernel} {padding} stride {strides}": (
            lambda kernel=kernel, padding=padding, strides=strides: _image(
                layers.Conv2DTranspose(5, kernel, strides=strides, padding=padding)
            )
        )
        for kernel, strides in ((1, 1), (2, 2), (3, 1), (3, 2), (2, 3), (4, 2))
        for padding in ("same", "valid")
    },
    **{
        f"{kind.__name__} {size} {padding} stride {strides}": (
            lambda kind=kind, size=size, padding=padding, strides=strides: _image(
                kind(size, strides=strides, padding=padding)
            )
        )
        for kind in (layers.MaxPooling2D, layers.AveragePooling2D)
        for size, strides in ((2, None), (3, 2), (3, 1), (2, 3), ((2, 3), (1, 2)))
        for padding in ("same", "valid")
    },
}
_OTHERS = {
    "strides that differ": lambda: _image(layers.Conv2D(5, 3, strides=(2, 1), padding="same")),
    "dilations that differ": lambda: _image(layers.Conv2D(5, 3, dilation_rate=(1, 2))),
    "wide kernels": _wide_kernels,
    "maxima that are equal": lambda: _image(layers.ReLU(), layers.MaxPooling2D(3, 1, "same")),
    **{
        kind.__name__: (lambda kind=kind, options=options: _image(kind(**options)))
        for kind, options in (
            (layers.GlobalAveragePooling2D, {}),
            (layers.GlobalMaxPooling2D, {}),
            (layers.UpSampling2D, {"size": (2, 3)}),
            (layers.ZeroPadding2D, {"padding": ((1, 2), (0, 3))}),
            (layers.Cropping2D, {"cropping": ((1, 2), (0, 3))}),
            (layers.BatchNormalization, {}),
            (layers.GroupNormalization, {"groups": 2}),
            (layers.PReLU, {"shared_axes": [1, 2]}),
            (layers.SeparableConv2D, {"filters": 5, "kernel_size": 3, "depth_multiplier": 2}),
        )
    },
    "upsampling between": lambda: _image(layers.UpSampling2D(2, interpolation="bilinear")),
    "resizing": lambda: _image(layers.Resizing(5, 12)),
    "resizing to the nearest": lambda: _image(layers.Resizing(13, 6, interpolation="nearest")),
    **{
        f"activation {name}": lambda name=name: _image(layers.Activation(name), size=(4, 3))
        for name in _ACTIVATIONS
    },
    "layer norm": lambda: _steps(layers.LayerNormalization()),
    "root mean square norm": lambda: _steps(layers.RMSNormalization()),
    "unit norm": lambda: _steps(layers.UnitNormalization()),
    "attention": _attention,
    "attention without bias": lambda: _attention(use_bias=False),
    "attention by products": lambda: _steps(lambda x: layers.Attention(use_scale=True)([x, x])),
    "attention by sums": lambda: _steps(lambda x: layers.AdditiveAttention()([x, x])),
    "product into heads": lambda: _steps(layers.EinsumDense("abc,cde->abde", (5, 2, 3), bias_axes="de")),
    "product out of heads": lambda: _steps(
        layers.Reshape((5, 2, 3)), layers.EinsumDense("abde,dec->abc", (5, 4), activation="tanh")
    ),
    "convolution at each step": lambda: _steps(
        layers.Reshape((5, 3, 2)), EachStep(layers.Conv1D(4, 2)), layers.BatchNormalization(), layers.ReLU()
    ),
    "recurrent layer at each step": lambda: _steps(
        layers.Reshape((5, 3, 2)), EachStep(layers.GRU(4, unroll=True))
    ),
    "transformer": _transformer,
    "pre-activation": _pre_activation,
    "slices": _sliced,
    "embedding": _tokens,
    "lstm": lambda: _steps(layers.LSTM(4, unroll=True)),
    "lstm, all steps": lambda: _steps(layers.LSTM(4, return_sequences=True, unroll=True)),
    "gru": lambda: _steps(layers.GRU(4, unroll=True)),
    "gru, reset before": lambda: _steps(layers.GRU(4, reset_after=False, unroll=True)),
    "simple rnn": lambda: _steps(layers.SimpleRNN(4, unroll=True)),
    "two directions": lambda: _steps(layers.Bidirectional(layers.LSTM(4, unroll=True))),
    "dot product of steps": lambda: _steps(lambda x: layers.Dot(2)([x, x])),
}
LAYERS = {**_CONVOLUTIONS, **_WINDOWS, **_OTHERS}

#: One network for each kind of sliding window; the others only differ in sizes.
TYPICAL = (
    *("3 same stride 2 dilation 1", "3 valid stride 1 dilation 2", "1 valid stride 2 dilation 1"),
    *("3 same stride 2", "2 valid stride 3"),
)
MANY = [
    *(name for name in (*_CONVOLUTIONS, *_WINDOWS) if not name.endswith(TYPICAL)),
    *(name for name in FAMILIES if name not in BROAD_FAMILIES),
]
NETWORKS = {
    **{name: lambda build=build: build(unmasked) for name, (build, _) in FAMILIES.items()},
    **LAYERS,
}


def network(name):
    """Return a network as it is packaged: with random weights and folded batch norms."""
    return fold_batch_norm(randomised(NETWORKS[name]()))


def objectives_of(model):
    """Return the objectives: classes for outputs with one row, regression for images."""
    return {
        name: Regression(Activation.NONE) if len(tensor.shape) > 3 else Categorical(Activation.NONE)
        for name, tensor in zip(output_names(model), model.outputs, strict=True)
    }


def trained(model, **options):
    """Return the training network that is converted to `train.tflite`."""
    tuning = tuning_of(**options)
    return TrainingNetwork(model, trainable_weights(model, tuning), objectives_of(model), tuning)


def places_of(model, **options):
    """Return the index of each trained weight among the model's weights, which may have another order."""
    places = {id(variable): at for at, variable in enumerate(model.trainable_variables)}
    return [places[id(variable)] for variable in trainable_weights(model, tuning_of(**options)).values()]


def tuning_of(**options):
    return TuningConfig(batch_size=BATCH, **{"trainable": "network", "optimizer": "sgd", **options})


def inputs_of(model, seed=1, count=BATCH):
    rng = np.random.default_rng(seed)
    return {
        tensor.name: rng.integers(0, 7, (count, *tensor.shape[1:])).astype(np.int32)
        if tensor.dtype == "int32"
        else rng.normal(size=(count, *tensor.shape[1:])).astype(np.float32)
        for tensor in model.inputs
    }


def targets_of(model, seed=2, count=BATCH):
    """Return targets by output name."""
    rng = np.random.default_rng(seed)
    actual = {}
    for name, tensor in zip(output_names(model), model.outputs, strict=True):
        shape = (count, *tensor.shape[1:])
        classes = rng.integers(0, shape[-1], shape[:-1]).astype(np.int32)
        actual[name] = rng.normal(size=shape).astype(np.float32) if len(shape) > 3 else classes
    return actual


def taught_of(model, seed=3, count=BATCH):
    """Return a teacher's probabilities by output name."""
    rng = np.random.default_rng(seed)
    shapes = zip(output_names(model), (tuple(tensor.shape[1:]) for tensor in model.outputs), strict=True)
    exps = {name: np.exp(rng.normal(size=(count, *shape))) for name, shape in shapes}
    return {name: (exp / exp.sum(-1, keepdims=True)).astype(np.float32) for name, exp in exps.items()}


def lesson_of(model):
    """Return all inputs of a training step except scalars."""
    targets, taught = targets_of(model), taught_of(model)
    return {
        **inputs_of(model),
        **{target_of(name): target for name, target in targets.items()},
        **{teacher_of(name): reported for name, reported in taught.items()},
    }

"""A small classifier for every supported kind of layer."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from executors.structure.each_step import EachStep
from executors.structure.keras_internals import LayerScale, StochasticDepth, core, math, nn, numpy
from executors.structure.litert_operations import SERVED
from executors.structure.lstm_memory import LSTMWithMemory
from tests.executors.structure.networks import randomised

#: Applies a layer to features.
Body = Callable[[Any], Any]

WORDS = 20
ARRAY = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


def _applied(kind: type, *args: Any, **options: Any) -> Body:
    """Return a body that creates the layer when it is called."""

    def body(x: Any) -> Any:
        return kind(*args, **options)(x)

    return body


STEPS: Mapping[type, Body] = {
    layers.ActivityRegularization: _applied(layers.ActivityRegularization, 0.01),
    layers.Activation: _applied(layers.Activation, "hard_silu"),
    layers.Add: lambda x: layers.Add()([x, layers.Dense(4)(x)]),
    layers.AdditiveAttention: lambda x: layers.AdditiveAttention()([x, layers.Dense(4)(x)]),
    layers.AlphaDropout: _applied(layers.AlphaDropout, 0.1),
    layers.Attention: lambda x: layers.Attention(use_scale=True)([x, layers.Dense(4)(x)]),
    layers.Average: lambda x: layers.Average()([x, layers.Dense(4)(x)]),
    layers.AveragePooling1D: _applied(layers.AveragePooling1D, 2),
    layers.BatchNormalization: lambda x: layers.BatchNormalization()(ops.tanh(x)),
    layers.Bidirectional: lambda x: layers.Bidirectional(layers.GRU(2))(layers.ReLU()(x)),
    layers.Concatenate: lambda x: layers.Concatenate()([x, layers.Dense(2)(x)]),
    layers.Conv1D: _applied(layers.Conv1D, 4, 3, activation="mish"),
    layers.Conv1DTranspose: _applied(layers.Conv1DTranspose, 4, 3, strides=2),
    layers.Cropping1D: _applied(layers.Cropping1D, 1),
    layers.Dense: _applied(layers.Dense, 5, "silu"),
    layers.DepthwiseConv1D: _applied(layers.DepthwiseConv1D, 3),
    layers.Dropout: _applied(layers.Dropout, 0.1),
    layers.ELU: _applied(layers.ELU),
    EachStep: lambda x: EachStep(layers.Conv1D(4, 3, activation="mish"))(layers.Reshape((2, 3, 4))(x)),
    layers.EinsumDense: _applied(layers.EinsumDense, "abc,cde->abde", (6, 2, 5), bias_axes="de"),
    layers.Flatten: _applied(layers.Flatten),
    layers.GRU: _applied(layers.GRU, 4),
    layers.GaussianDropout: _applied(layers.GaussianDropout, 0.1),
    layers.GaussianNoise: _applied(layers.GaussianNoise, 0.1),
    layers.GlobalAveragePooling1D: _applied(layers.GlobalAveragePooling1D),
    layers.GlobalMaxPooling1D: _applied(layers.GlobalMaxPooling1D),
    layers.GroupQueryAttention: lambda x: layers.GroupQueryAttention(2, 4, 2)(x, x),
    layers.Identity: _applied(layers.Identity),
    layers.LSTM: _applied(layers.LSTM, 4),
    LSTMWithMemory: _applied(LSTMWithMemory, 4),
    layers.LayerNormalization: _applied(layers.LayerNormalization),
    layers.LeakyReLU: _applied(layers.LeakyReLU, 0.1),
    layers.Masking: lambda x: layers.GRU(4)(layers.Masking()(x)),
    layers.MaxPooling1D: _applied(layers.MaxPooling1D),
    layers.Maximum: lambda x: layers.Maximum()([x, layers.Dense(4)(x)]),
    layers.Minimum: lambda x: layers.Minimum()([x, layers.Dense(4)(x)]),
    layers.MultiHeadAttention: lambda x: layers.MultiHeadAttention(2, 4)(x, x),
    layers.Multiply: lambda x: layers.Multiply()([x, layers.Dense(4, "sigmoid")(x)]),
    layers.PReLU: _applied(layers.PReLU, shared_axes=[1]),
    layers.Permute: _applied(layers.Permute, (2, 1)),
    layers.RMSNormalization: _applied(layers.RMSNormalization),
    layers.ReLU: _applied(layers.ReLU),
    layers.RepeatVector: lambda x: layers.RepeatVector(3)(layers.Flatten()(x)),
    layers.Rescaling: _applied(layers.Rescaling, 0.5, 1.0),
    layers.Reshape: _applied(layers.Reshape, (3, 8)),
    layers.SeparableConv1D: _applied(layers.SeparableConv1D, 4, 3),
    layers.SimpleRNN: _applied(layers.SimpleRNN, 4),
    layers.Softmax: _applied(layers.Softmax),
    layers.SpatialDropout1D: _applied(layers.SpatialDropout1D, 0.1),
    layers.Subtract: lambda x: layers.Subtract()([x, layers.Dense(4)(x)]),
    layers.UnitNormalization: _applied(layers.UnitNormalization),
    layers.UpSampling1D: _applied(layers.UpSampling1D),
    layers.ZeroPadding1D: _applied(layers.ZeroPadding1D),
    StochasticDepth: _applied(StochasticDepth, 0.1),
}

IMAGES: Mapping[type, Body] = {
    layers.AveragePooling2D: _applied(layers.AveragePooling2D, 2),
    layers.CenterCrop: _applied(layers.CenterCrop, 6, 6),
    layers.Conv2D: _applied(layers.Conv2D, 4, 3, dilation_rate=2, activation="swish"),
    layers.Conv2DTranspose: _applied(layers.Conv2DTranspose, 4, 3, strides=2, padding="same"),
    layers.Cropping2D: _applied(layers.Cropping2D, 1),
    layers.DepthwiseConv2D: _applied(layers.DepthwiseConv2D, 3),
    layers.GlobalAveragePooling2D: _applied(layers.GlobalAveragePooling2D),
    layers.GlobalMaxPooling2D: _applied(layers.GlobalMaxPooling2D),
    layers.GroupNormalization: _applied(layers.GroupNormalization, 2),
    layers.MaxPooling2D: _applied(layers.MaxPooling2D),
    layers.RandomBrightness: _applied(layers.RandomBrightness, 0.1, value_range=(0, 1)),
    layers.RandomContrast: _applied(layers.RandomContrast, 0.1),
    layers.RandomCrop: _applied(layers.RandomCrop, 8, 8),
    layers.RandomFlip: _applied(layers.RandomFlip),
    layers.RandomRotation: _applied(layers.RandomRotation, 0.1),
    layers.RandomTranslation: _applied(layers.RandomTranslation, 0.1, 0.1),
    layers.RandomZoom: _applied(layers.RandomZoom, 0.1),
    layers.Resizing: _applied(layers.Resizing, 6, 6),
    layers.SeparableConv2D: _applied(layers.SeparableConv2D, 4, 3),
    layers.SpatialDropout2D: _applied(layers.SpatialDropout2D, 0.1),
    layers.UpSampling2D: _applied(layers.UpSampling2D),
    layers.ZeroPadding2D: _applied(layers.ZeroPadding2D),
    LayerScale: _applied(LayerScale, 1.0, 4),
}


def _float(x: Any) -> Any:
    return ops.cast(x, "float32")


def _positive(x: Any) -> Any:
    return ops.sigmoid(x) + 0.5


OPERATIONS: Mapping[type, Body] = {
    numpy.Absolute: ops.abs,
    numpy.Add: lambda x: x + ops.mean(x, axis=1, keepdims=True),
    numpy.All: lambda x: _float(ops.all(x > -1, axis=1)),
    numpy.Amax: lambda x: ops.amax(x, axis=1),
    numpy.Amin: lambda x: ops.amin(x, axis=1),
    numpy.Any: lambda x: _float(ops.any(x > 1, axis=1)),
    numpy.Argmax: lambda x: _float(ops.argmax(x, axis=-1)),
    numpy.Argmin: lambda x: _float(ops.argmin(x, axis=-1)),
    numpy.BroadcastTo: lambda x: ops.broadcast_to(ops.mean(x, axis=0, keepdims=True), (1, 6, 4)) + x,
    numpy.Clip: lambda x: ops.clip(x, -1, 1),
    numpy.Concatenate: lambda x: ops.concatenate([x, ops.tanh(x)], axis=1),
    numpy.Cumprod: lambda x: ops.cumprod(x, axis=1),
    numpy.Cumsum: lambda x: ops.cumsum(x, axis=1),
    numpy.Divide: lambda x: ops.divide(x, _positive(x)),
    numpy.Einsum: lambda x: ops.einsum("bij,bkj->bik", x, x),
    numpy.Equal: lambda x: _float(ops.equal(ops.argmax(x, axis=-1), 1)),
    numpy.Exp: ops.exp,
    numpy.ExpandDims: lambda x: ops.expand_dims(x, 2),
    numpy.Flip: lambda x: ops.flip(x, axis=1),
    numpy.FullLike: lambda x: x * ops.full_like(x, 2.0),
    numpy.GetItem: lambda x: x[:, 1:3],
    numpy.Greater: lambda x: _float(x > 0.1),
    numpy.GreaterEqual: lambda x: _float(x >= 0.1),
    numpy.Less: lambda x: _float(x < 0.1),
    numpy.LessEqual: lambda x: _float(x <= 0.1),
    numpy.Log: lambda x: ops.log(_positive(x)),
    numpy.LogicalAnd: lambda x: _float(ops.logical_and(x > -1, x < 1)),
    numpy.LogicalNot: lambda x: _float(ops.logical_not(x > 0.1)),
    numpy.LogicalOr: lambda x: _float(ops.logical_or(x < -1, x > 1)),
    numpy.Matmul: lambda x: ops.matmul(x, ARRAY),
    numpy.Max: lambda x: ops.max(x, axis=1),
    numpy.Maximum: lambda x: ops.maximum(x, ops.mean(x, axis=1, keepdims=True)),
    numpy.Mean: lambda x: ops.mean(x, axis=1),
    numpy.Min: lambda x: ops.min(x, axis=1),
    numpy.Minimum: lambda x: ops.minimum(x, ops.mean(x, axis=1, keepdims=True)),
    numpy.Mod: lambda x: ops.mod(x, 2.0),
    numpy.Moveaxis: lambda x: ops.moveaxis(x, 1, 2),
    numpy.Multiply: lambda x: x * ops.mean(x, axis=1, keepdims=True),
    numpy.Negative: ops.negative,
    numpy.NotEqual: lambda x: _float(ops.not_equal(ops.argmax(x, axis=-1), 1)),
    numpy.OnesLike: lambda x: x + ops.ones_like(x),
    numpy.Pad: lambda x: ops.pad(x, [[0, 0], [1, 1], [0, 0]]),
    numpy.Power: lambda x: ops.power(x, 2.0),
    numpy.Prod: lambda x: ops.prod(x, axis=1),
    numpy.Reciprocal: lambda x: ops.reciprocal(_positive(x)),
    numpy.Repeat: lambda x: ops.repeat(x, 2, axis=1),
    numpy.Reshape: lambda x: ops.reshape(x, (-1, 24)),
    numpy.Roll: lambda x: ops.roll(x, 1, axis=1),
    numpy.Sign: ops.sign,
    numpy.Sqrt: lambda x: ops.sqrt(_positive(x)),
    numpy.Square: ops.square,
    numpy.Squeeze: lambda x: ops.squeeze(x[:, :1], 1),
    numpy.Stack: lambda x: ops.stack([x, ops.tanh(x)], axis=1),
    numpy.Std: lambda x: ops.std(x, axis=1),
    numpy.Subtract: lambda x: x - ops.mean(x, axis=1, keepdims=True),
    numpy.Sum: lambda x: ops.sum(x, axis=1),
    numpy.Swapaxes: lambda x: ops.swapaxes(x, 1, 2),
    numpy.Take: lambda x: ops.take(x, [0, 2], axis=1),
    numpy.Tanh: ops.tanh,
    numpy.Tile: lambda x: ops.tile(x, (1, 2, 1)),
    numpy.Transpose: lambda x: ops.transpose(x, (0, 2, 1)),
    numpy.Tril: ops.tril,
    numpy.Triu: ops.triu,
    numpy.TrueDivide: lambda x: x / _positive(x),
    numpy.Var: lambda x: ops.var(x, axis=1),
    numpy.Where: lambda x: ops.where(x > 0.1, x, ops.tanh(x)),
    numpy.ZerosLike: lambda x: ops.maximum(x, ops.zeros_like(x)),
    nn.Celu: ops.celu,
    nn.Elu: ops.elu,
    nn.Gelu: ops.gelu,
    nn.HardSigmoid: ops.hard_sigmoid,
    nn.HardSilu: ops.hard_silu,
    nn.HardTanh: ops.hard_tanh,
    nn.LeakyRelu: ops.leaky_relu,
    nn.LogSigmoid: ops.log_sigmoid,
    nn.LogSoftmax: ops.log_softmax,
    nn.OneHot: lambda x: ops.one_hot(ops.cast(ops.argmax(x, -1), "int32"), 4),
    nn.Relu: ops.relu,
    nn.Relu6: ops.relu6,
    nn.Selu: ops.selu,
    nn.Sigmoid: ops.sigmoid,
    nn.Silu: ops.silu,
    nn.Softmax: ops.softmax,
    nn.Softplus: ops.softplus,
    nn.Softsign: ops.softsign,
    core.Cast: lambda x: _float(ops.cast(x, "float16")),
    core.ConvertToTensor: ops.convert_to_tensor,
    core.StopGradient: ops.stop_gradient,
    math.Erf: ops.erf,
    math.Logsumexp: lambda x: ops.logsumexp(x, axis=1),
    math.Rsqrt: lambda x: ops.rsqrt(_positive(x)),
}

VOLUMES: Mapping[type, Body] = {
    layers.AveragePooling3D: _applied(layers.AveragePooling3D, (3, 2, 2), 2, padding="same"),
    layers.Conv3D: _applied(layers.Conv3D, 4, 2, name="conv3d"),
    layers.Conv3DTranspose: _applied(layers.Conv3DTranspose, 4, 3, strides=2, name="conv3d"),
    layers.Cropping3D: _applied(layers.Cropping3D, 1),
    layers.GlobalAveragePooling3D: _applied(layers.GlobalAveragePooling3D),
    layers.GlobalMaxPooling3D: _applied(layers.GlobalMaxPooling3D),
    layers.MaxPooling3D: _applied(layers.MaxPooling3D, (2, 3, 2), (1, 2, 2)),
    layers.SpatialDropout3D: _applied(layers.SpatialDropout3D, 0.1),
    layers.UpSampling3D: _applied(layers.UpSampling3D),
    layers.ZeroPadding3D: _applied(layers.ZeroPadding3D, 1),
}

#: All layers except those that `example` handles itself.
BODIES = STEPS | IMAGES | VOLUMES | OPERATIONS

_SHAPES: Mapping[type, tuple[int, ...]] = {
    **dict.fromkeys(IMAGES, (8, 8, 4)),
    **dict.fromkeys(VOLUMES, (4, 4, 4, 2)),
}


def _served(kind: type) -> type:
    """Return the original operation if `kind` is its replacement for serving."""
    return next((original for original, served in SERVED.items() if served is kind), kind)


def example(kind: type) -> keras.Model:
    """Return a classifier with three classes and a layer of this kind."""
    if kind in (layers.Embedding, layers.ReversibleEmbedding):
        inputs = keras.Input((6,), dtype="int32", name="x")
        features = kind(WORDS, 4)(inputs)
    elif kind is layers.Normalization:
        inputs = keras.Input((6, 4), name="x")
        features = layers.Normalization()(inputs)
    else:
        inputs = keras.Input(_SHAPES.get(_served(kind), (6, 4)), name="x")
        features = BODIES[_served(kind)](layers.Dense(4, name="before")(inputs))
    scores = layers.Dense(3, "softmax", name="scores")(layers.Flatten()(features))
    return randomised(keras.Model(inputs, scores))


def rows(model: keras.Model, count: int, seed: int = 0) -> dict[str, Any]:
    """Return random inputs for an example model."""
    rng, (tensor,) = np.random.default_rng(seed), model.inputs
    shape = (count, *tensor.shape[1:])
    if tensor.dtype == "int32":
        return {"x": rng.integers(WORDS, size=shape).astype(np.int32)}
    return {"x": rng.normal(size=shape).astype(np.float32)}

"""MLPerf Tiny's ResNet-8 in PyTorch: translated from Keras, trained and measured as in `executors`."""

from collections.abc import Iterator
from math import ceil
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from executors.data import Array, Dataset
from executors.training.evaluation import EVALUATION_BATCH, RECALIBRATION_BATCH, RECALIBRATION_EXAMPLES

_NORM_EPSILON: Final = 1e-3
_NORM_MOMENTUM: Final = 0.01  # 0.99 in Keras's definition


class Block(nn.Module):
    """Two convolutions with a shortcut, which is a convolution itself if the shape changes."""

    def __init__(self, channels: int, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(channels, inner, 3, stride), _norm(inner)
        self.conv2, self.norm2 = _conv(inner, outer, 3, 1), _norm(outer)
        self.shortcut = _conv(channels, outer, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return activations [batch, outer, height / stride, width / stride]."""
        y = functional.relu(self.norm1(self.conv1(_padded(x, self.conv1.stride[0]))))
        y = self.norm2(self.conv2(_padded(y, 1)))
        return functional.relu(y + self.shortcut(x))


class ResNet8(nn.Module):
    """A convolution, three blocks and a dense layer that returns logits.

    Args:
        stem: Channels of the first convolution, and thus of the input of the first block.
        blocks: Inner and outer channels of each block.
        classes: Number of classes.
    """

    def __init__(self, stem: int, blocks: tuple[tuple[int, int], ...], classes: int) -> None:
        super().__init__()
        self.conv, self.norm = _conv(3, stem, 3, 1), _norm(stem)
        channels, residual = stem, []
        for number, (inner, outer) in enumerate(blocks):
            residual.append(Block(channels, inner, outer, stride=2 if number else 1))
            channels = outer
        self.blocks = nn.Sequential(*residual)
        self.dense = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [batch, classes] of images [batch, 3, height, width] in 0 to 255."""
        y = functional.relu(self.norm(self.conv(_padded(x, 1))))
        return self.dense(self.blocks(y).mean((2, 3)))


def translated(model: keras.Model) -> ResNet8:
    """Return a Keras ResNet-8 of any widths in PyTorch, with its weights.

    Raises:
        ValueError: The model has other layers than a ResNet-8.
    """
    convs = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    (dense,) = (layer for layer in model.layers if isinstance(layer, keras.layers.Dense))
    main = [layer for layer in convs if layer.kernel_size == (3, 3)]
    shortcuts = [layer for layer in convs if layer.kernel_size == (1, 1)]
    if (len(main), len(shortcuts), len(norms)) != (7, 2, 7):
        raise ValueError(f"{model.name} has the layers {[layer.name for layer in model.layers]}")
    widths = [layer.filters for layer in main]
    twin = ResNet8(widths[0], tuple(zip(widths[1::2], widths[2::2], strict=True)), dense.units)
    blocks = list(twin.blocks)
    to_main = [twin.conv, *(conv for block in blocks for conv in (block.conv1, block.conv2))]
    to_norms = [twin.norm, *(norm for block in blocks for norm in (block.norm1, block.norm2))]
    to_shortcuts = [block.shortcut for block in blocks[1:]]
    for source, conv in zip([*main, *shortcuts], [*to_main, *to_shortcuts], strict=True):
        kernel, bias = source.get_weights()
        _fill(conv, weight=kernel.transpose(3, 2, 0, 1), bias=bias)
    for source, norm in zip(norms, to_norms, strict=True):
        weight, bias, mean, variance = source.get_weights()
        _fill(norm, weight=weight, bias=bias, running_mean=mean, running_var=variance)
    kernel, bias = dense.get_weights()
    _fill(twin.dense, weight=kernel.T, bias=bias)
    twin.to(memory_format=torch.channels_last)
    return twin


def tensors(x: npt.NDArray[np.generic]) -> Tensor:
    """Convert images [n, height, width, channels] to channel-first tensors of the same type."""
    return torch.from_numpy(x).permute(0, 3, 1, 2)


def multiply_adds(network: nn.Module, image: Tensor) -> int:
    """Return the multiply-adds of one inference, counted as in Mistify: convolutions and dense layers."""
    counted = []

    def count(layer: Any, _inputs: Any, output: Tensor) -> None:
        counted.append(layer.weight.numel() * output[0, 0].numel())

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        network.eval()(image[:1].float())
    for hook in hooks:
        hook.remove()
    return sum(counted)


def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """Return the probabilities [n, classes] of many images."""
    network.eval()
    with torch.no_grad():
        batches = [network(batch.float()).softmax(dim=1) for batch in images.split(EVALUATION_BATCH)]
    return torch.cat(batches)


def arrays_of(data: Dataset) -> tuple[Array, Array]:
    """Return images and classes of data with one input and one output."""
    (images,), (classes,) = data.inputs.values(), data.targets.values()
    return images, classes


def accuracy(network: nn.Module, data: Dataset) -> float:
    """Return the share of examples that the network classifies correctly."""
    images, classes = arrays_of(data)
    predicted = probabilities(network, tensors(images)).argmax(dim=1).numpy()
    return float(np.mean(predicted == classes))


def recalibrate(network: nn.Module, data: Dataset) -> None:
    """Set the statistics of every batch norm like the recalibration in `executors`, on the same images."""
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    order = np.random.default_rng(0).permutation(len(data))[:RECALIBRATION_EXAMPLES]
    network.train()
    with torch.no_grad():
        parts = ceil(len(order) / RECALIBRATION_BATCH)
        for batch in tensors(arrays_of(data)[0][order]).tensor_split(parts):
            network(batch.float())
    for norm in norms:
        norm.momentum = _NORM_MOMENTUM


def batches(examples: int, size: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of indices indefinitely, each example once per epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(examples, generator=generator)[: examples // size * size].split(size)


def _conv(channels: int, filters: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, kernel, stride)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, _NORM_EPSILON, _NORM_MOMENTUM)


def _padded(x: Tensor, stride: int) -> Tensor:
    """Pad like Keras's `same` for a 3 x 3 kernel and even sizes: with stride 2 only at the far side."""
    near = 1 if stride == 1 else 0
    return functional.pad(x, (near, 1, near, 1))


def _fill(layer: nn.Module, **arrays: npt.NDArray[np.float32]) -> None:
    state = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    layer.load_state_dict(state, strict=False)

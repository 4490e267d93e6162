"""A small residual network for CIFAR-10 in PyTorch, its ONNX file, and the same network in Keras."""

from pathlib import Path
from typing import Final

import keras
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.porting.torch_resnet8 import batches, tensors

_WIDTHS: Final = (16, 24, 48)
_BATCH: Final = 128
_RATE: Final = 0.02
_DECAY: Final = 5e-4
_OPSET: Final = 17

layers = keras.layers


class Network(nn.Module):
    """A stem and two stages, each of which halves the image and ends with a residual convolution."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem, channels = _conv(3, _WIDTHS[0], 1), _WIDTHS[0]
        self.halving, self.residual = nn.ModuleList(), nn.ModuleList()
        for width in _WIDTHS[1:]:
            self.halving.append(_conv(channels, width, 2))
            self.residual.append(_conv(width, width, 1))
            channels = width
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Return scores [n, classes] of images [n, 3, height, width] in 0 to 255."""
        x = functional.relu(self.stem(image / 128 - 1))
        for halving, residual in zip(self.halving, self.residual, strict=True):
            x = functional.relu(halving(x))
            x = functional.relu(x + residual(x))
        return self.head(x.mean((2, 3)))


def trained(file: Path, epochs: int, seed: int) -> Network:
    """Return a network trained on a file with images and classes: flips, SGD with momentum, one cycle."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    network = Network()
    network.to(memory_format=torch.channels_last)
    with np.load(file) as data:
        inputs, labels = tensors(data["x"]), torch.from_numpy(data["y"].astype(np.int64).reshape(-1))
    optimizer = torch.optim.SGD(network.parameters(), _RATE, 0.9, nesterov=True, weight_decay=_DECAY)
    steps = epochs * (len(inputs) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5 * _RATE, total_steps=steps)
    for _, batch in zip(range(steps), batches(len(inputs), _BATCH, seed), strict=False):
        chosen = inputs[batch].float()
        flipped = torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, chosen.flip(3), chosen)
        optimizer.zero_grad()
        functional.cross_entropy(network(flipped), labels[batch], label_smoothing=0.1).backward()
        optimizer.step()
        schedule.step()
    network.eval()
    return network


def export(network: Network, path: Path) -> None:
    """Write a network as an ONNX file with a free batch."""
    names = {"input_names": ["x"], "output_names": ["y"]}
    free = {"dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}, "opset_version": _OPSET}
    torch.onnx.export(network, (torch.zeros(1, 3, 32, 32),), path, dynamo=False, **names, **free)


def in_keras(network: Network) -> keras.Model:
    """Return the network as a Keras user writes it, with the same weights."""
    image = keras.Input((32, 32, 3), name="x")
    x = layers.Rescaling(1 / 128, -1)(image)
    x = layers.ReLU()(_in_keras(x, network.stem))
    for halving, residual in zip(network.halving, network.residual, strict=True):
        x = layers.ReLU()(_in_keras(x, halving))
        x = layers.ReLU()(layers.Add()([x, _in_keras(x, residual)]))
    head = layers.Dense(network.head.out_features, name="y")
    model = keras.Model(image, head(layers.GlobalAveragePooling2D()(x)))
    head.set_weights([network.head.weight.detach().numpy().T, network.head.bias.detach().numpy()])
    return model


def _conv(channels: int, filters: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(filters))


def _in_keras(x: keras.KerasTensor, made: nn.Sequential) -> keras.KerasTensor:
    conv, norm = made
    padded = layers.ZeroPadding2D(1)(x) if conv.stride[0] > 1 else x  # `same` would pad only behind
    padding = "valid" if conv.stride[0] > 1 else "same"
    layer = layers.Conv2D(conv.out_channels, 3, conv.stride[0], padding, use_bias=False)
    normalized = layers.BatchNormalization(epsilon=norm.eps)
    result = normalized(layer(padded))
    layer.set_weights([conv.weight.detach().numpy().transpose(2, 3, 1, 0)])
    arrays = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    normalized.set_weights([array.detach().numpy() for array in arrays])
    return result

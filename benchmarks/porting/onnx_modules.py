"""PyTorch networks whose operators those of torchvision and timm lack."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def vgg16(*, classes: int) -> nn.Module:
    """Return torchvision's VGG16 with small dense layers."""
    from torchvision import models  # noqa: PLC0415 (optional)

    network = models.vgg16(weights=None, num_classes=classes)
    network.avgpool = nn.AdaptiveAvgPool2d(1)
    dense = (nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))
    network.classifier = nn.Sequential(*dense)
    return network


def segmentation(*, classes: int) -> nn.Module:
    """Return torchvision's LR-ASPP, with only the main output."""
    from torchvision import models  # noqa: PLC0415 (optional)

    network = models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=classes
    )
    return _Main(network)


class _Main(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Any) -> Any:
        return self.network(image)["out"]


class Tagger(nn.Module):
    """A class for each word, by two recurrent layers in both directions."""

    def __init__(self, cell: str, words: int, *, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 32)
        self.layers = getattr(nn, cell)(32, 48, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(96, classes)

    def forward(self, words: Any) -> Any:
        """Return scores [n, words, classes]."""
        return self.head(self.layers(self.words(words))[0])


def _conv(channels: int, made: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    layer = nn.Conv2d(channels, made, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(made, eps=1e-3), nn.SiLU())


class Detector(nn.Module):
    """Boxes and scores at two scales, in the form of YOLOv8."""

    _BINS = 8

    def __init__(self, *, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, stride=2), _conv(16, 32, stride=2), _conv(32, 64, stride=2))
        self.down = _conv(64, 96, stride=2)
        self.lateral, self.fuse = _conv(96, 64, 1), _conv(128, 64)
        self.pool, self.pyramid = nn.MaxPool2d(5, 1, 2), _conv(3 * 96, 96, 1)
        self.boxes = nn.ModuleList(self._head(channels, 4 * self._BINS) for channels in (64, 96))
        self.classes = nn.ModuleList(self._head(channels, classes) for channels in (64, 96))

    @staticmethod
    def _head(channels: int, made: int) -> nn.Module:
        return nn.Sequential(_conv(channels, 32), nn.Conv2d(32, made, 1))

    def forward(self, image: Any) -> Any:
        """Return centres, sizes and scores [n, 4 + classes, positions]."""
        fine = self.stem(image)
        coarse = self.down(fine)
        pooled = self.pool(coarse)
        coarse = self.pyramid(torch.cat([coarse, pooled, self.pool(pooled)], 1))
        large = functional.interpolate(self.lateral(coarse), scale_factor=2, mode="nearest")
        scales = ((self.fuse(torch.cat([fine, large], 1)), 8.0), (coarse, 16.0))
        return torch.cat([self._decoded(index, *scale) for index, scale in enumerate(scales)], 2)

    def _decoded(self, index: int, features: Any, stride: float) -> Any:
        height, width = features.shape[2:]
        bins = self.boxes[index](features).view(-1, 4, self._BINS, height * width).transpose(2, 1).softmax(1)
        sides = (bins * torch.arange(self._BINS, dtype=bins.dtype).view(1, -1, 1, 1)).sum(1)
        rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        places = torch.stack([columns.reshape(-1), rows.reshape(-1)])[None]
        before, after = sides.chunk(2, 1)
        first, last = places - before, places + after
        scores = self.classes[index](features).flatten(2).sigmoid()
        return torch.cat([(first + last) / 2 * stride, (last - first) * stride, scores], 1)


class RareOptions(nn.Module):
    """Options that converters confuse: odd padding, group norms, aligned corners, a flatten of an image."""

    def __init__(self, *, classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.PReLU(12))
        self.grouped = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1, groups=4), nn.BatchNorm2d(24, eps=1e-3))
        self.largest = nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.enlarged = nn.ConvTranspose2d(24, 16, 3, 2, 1, output_padding=1)
        self.mean = nn.AvgPool2d(3, 2, 1, count_include_pad=True)
        self.depthwise = nn.Conv2d(16, 32, 5, padding=2, groups=16)
        self.norms = nn.Sequential(nn.GroupNorm(4, 32), nn.InstanceNorm2d(32, affine=True))
        self.head = nn.Linear(32 * 8 * 8, classes)

    def forward(self, image: Any) -> Any:
        """Return scores [n, classes]."""
        x = functional.leaky_relu(self.grouped(self.first(image)), 0.2)
        x = self.norms(self.depthwise(self.mean(self.enlarged(self.largest(x)))))
        x = functional.pad(x, (1, 0, 2, 1), mode="reflect")
        x = functional.interpolate(x, scale_factor=2, mode="nearest")
        x = functional.interpolate(x, size=(8, 8), mode="bilinear", align_corners=True)
        x = torch.cat([*x.chunk(2, 1)][::-1], 1)
        x = functional.softmax(x, 1) * functional.hardswish(x)
        return self.head(x.flatten(1))

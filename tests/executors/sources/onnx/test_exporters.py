"""Networks of PyTorch in the files of both of its exporters."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch
from torch import nn

from executors.sources.onnx.loading import load_onnx


class Gated(nn.Module):  # type: ignore[misc]
    """A residual block with a gate for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.gate = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.ReLU()),
            *(nn.Conv2d(4, channels, 1), nn.Hardsigmoid()),
        )

    def forward(self, image: Any) -> Any:
        """Return the gated image, added to itself."""
        hidden = nn.functional.hardswish(self.norm(self.expand(image)))
        return image + hidden * self.gate(hidden)


class Network(nn.Module):  # type: ignore[misc]
    """Convolutions, then attention over positions with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.SiLU(), nn.MaxPool2d(3, 2, 1))
        self.block = Gated(16)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 17, 16))
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mixer = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, image: Any) -> Any:
        """Return scores [n, 5] for images [n, 3, 16, 16]."""
        hidden = self.block(self.stem(image))
        hidden = torch.cat([hidden[:, :8].roll(1, 1), hidden.chunk(2, 1)[1]], 1)
        tokens = hidden.flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(tokens.shape[0], -1, -1), tokens], 1) + self.places
        normal = self.norm(tokens)
        tokens = tokens + self.attention(normal, normal, normal, need_weights=False)[0]
        tokens = tokens + self.mixer(tokens)
        return self.head(tokens[:, 0])


class CosineClassifier(nn.Module):  # type: ignore[misc]
    """Attention in Einstein's notation, and scores by the cosine to a vector for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))
        self.out = nn.Parameter(torch.randn(3, 4, 12))
        self.classes = nn.Linear(12, 5, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Return scores [n, 5] for tokens [n, 6, 12]."""
        n, count, _ = tokens.shape
        query, key, value = (each(tokens).view(n, count, 3, 4) for each in self.projections)
        attention = torch.einsum("nqhd,nkhd->nhqk", query, key).softmax(-1)
        attended = torch.einsum("nhqk,nkhd->nqhd", attention, value)
        mixed = torch.einsum("nqhd,hdo->nqo", attended, self.out).amax(1)
        normal = nn.functional.normalize
        return nn.functional.linear(normal(mixed), normal(self.classes.weight)) * 16


class Decoder(nn.Module):  # type: ignore[misc]
    """Causal attention in which heads share keys and values, and attention to seen tokens only."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.mixed = nn.Linear(12, 12), nn.Linear(12, 12)
        self.key, self.value = nn.Linear(12, 4), nn.Linear(12, 4)
        self.reader = nn.Linear(12, 36)
        self.last = nn.Linear(12, 12)

    def forward(self, tokens: Any) -> Any:
        """Return tokens [n, 6, 12]."""
        query, key, value = (
            made(tokens).unflatten(-1, (-1, 2)).transpose(1, 2) for made in (self.query, self.key, self.value)
        )
        attend = nn.functional.scaled_dot_product_attention
        made = attend(query, key, value, is_causal=True, enable_gqa=True)
        tokens = tokens + self.mixed(made.transpose(1, 2).flatten(2))
        seen = (tokens.amax(-1) > 0.1)[:, None, None]
        parts = self.reader(tokens).unflatten(-1, (3, 4, 3)).permute(2, 0, 3, 1, 4)
        made = attend(*parts.unbind(0), attn_mask=seen)
        return tokens + self.last(made.transpose(1, 2).flatten(2))


def exported(network: Any, example: Any, directory: Path) -> dict[str, Path]:
    """Export a network with both exporters, with a free batch; return the files by name."""
    files = {name: directory / f"{name}.onnx" for name in ("traced", "exported")}
    names = {"input_names": ["data"], "output_names": ["scores"]}
    axes = {"dynamic_axes": {"data": {0: "n"}, "scores": {0: "n"}}}
    torch.onnx.export(network, (example,), files["traced"], dynamo=False, **names, **axes)
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("n")},)}
    torch.onnx.export(network, (example,), files["exported"], dynamo=True, **names, **shapes)
    return files


@pytest.mark.slow
def test_files_of_both_exporters_compute_what_pytorch_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, image = Network().eval(), torch.randn(3, 3, 16, 16)
    expected = network(image).detach().numpy()
    for name, file in exported(network, image, tmp_path).items():
        model = load_onnx(file)
        made = np.asarray(model(np.moveaxis(image.numpy(), 1, -1)))
        np.testing.assert_allclose(made, expected, atol=1e-5, err_msg=name)
        assert {"block.expand", "head"} <= {layer.name for layer in model.layers}
        assert sum(isinstance(layer, keras.layers.MultiHeadAttention) for layer in model.layers) == 1


@pytest.mark.slow
def test_attention_by_einsum_is_one_layer_and_norms_of_weights_are_computed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, tokens = CosineClassifier().eval(), torch.randn(3, 6, 12)
    expected = network(tokens).detach().numpy()
    for name, file in exported(network, tokens, tmp_path).items():
        model = load_onnx(file)
        np.testing.assert_allclose(np.asarray(model(tokens.numpy())), expected, atol=1e-4, err_msg=name)
        kinds = [type(layer) for layer in model.layers]
        assert kinds.count(keras.layers.Dense) == 1, "the scores, by stored vectors of length 16"
        assert keras.layers.MultiHeadAttention in kinds


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 23])
def test_masked_and_shared_attention_are_layers(tmp_path: Path, opset: int) -> None:
    torch.manual_seed(0)
    network, tokens = Decoder().eval(), torch.randn(3, 6, 12)
    file = tmp_path / "net.onnx"
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("n")},), "input_names": ["tokens"]}
    torch.onnx.export(network, (tokens,), file, dynamo=True, opset_version=opset, **shapes)
    model = load_onnx(file)
    expected = network(tokens).detach().numpy()
    np.testing.assert_allclose(np.asarray(model(tokens.numpy())), expected, atol=1e-5)
    kinds = [type(layer) for layer in model.layers if layer.weights]
    assert kinds == [keras.layers.GroupQueryAttention, keras.layers.MultiHeadAttention]


@pytest.mark.slow
def test_layers_are_named_after_modules_whose_weights_the_exporter_transposed(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(12, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)).eval()
    file, shapes = tmp_path / "net.onnx", ({0: torch.export.Dim("n")},)
    torch.onnx.export(network, (torch.randn(3, 4, 12),), file, dynamo=True, dynamic_shapes=shapes)
    assert [layer.name for layer in load_onnx(file).layers if layer.weights] == ["0", "2"]

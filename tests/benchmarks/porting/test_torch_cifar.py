"""The network of the comparison of ports from PyTorch and from Keras."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from benchmarks.harness.run import MissingDataError
from benchmarks.porting import pytorch_source
from benchmarks.porting.torch_cifar import Network, export, in_keras, trained
from executors.sources.onnx.loading import load_onnx


def randomised() -> Network:
    torch.manual_seed(0)
    network = Network()
    for name, values in [*network.named_parameters(), *network.named_buffers()]:
        if values.ndim == 1 and values.is_floating_point():
            with torch.no_grad():
                values.uniform_(0.5, 1.5) if name.endswith("var") else values.normal_(0.5, 0.5)
    return network.eval()


@pytest.mark.slow
def test_both_sources_compute_what_the_network_does(tmp_path: Path) -> None:
    network = randomised()
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    export(network, tmp_path / "net.onnx")
    for source in (in_keras(network), load_onnx(tmp_path / "net.onnx")):
        np.testing.assert_allclose(np.asarray(source(images)), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.slow
def test_training_teaches_the_classes(tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 2560)
    images = np.random.default_rng(1).integers(0, 26, (2560, 32, 32, 3)) + 25 * labels[:, None, None, None]
    np.savez(tmp_path / "train.npz", x=images.clip(0, 255).astype(np.uint8), y=labels[:, None])
    network = trained(tmp_path / "train.npz", 3, seed=0)
    inputs = torch.from_numpy(images[:200].astype(np.float32)).permute(0, 3, 1, 2)
    with torch.no_grad():
        assert np.mean(network(inputs).argmax(1).numpy() == labels[:200]) > 0.5


def test_missing_data_are_named() -> None:
    with pytest.raises(MissingDataError, match=r"cifar10/train\.npz"):
        pytorch_source.measure(Namespace(data=None, seeds=(0,), quick=True))

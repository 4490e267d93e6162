"""Networks that a function in a Python file returns."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

import torch

from executors.sources.pytorch.loading import load_pytorch
from mistify.errors import ErrorCode, MistifyError

pytestmark = pytest.mark.slow  # each call starts a process that imports PyTorch

NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, image, extra):
        hidden = torch.relu(self.norm(self.stem(image))).mean((2, 3))
        return {"scores": self.head(hidden), "shifted": hidden + extra}

def network(weights=None):
    made = Network()
    if weights is not None:
        made.load_state_dict(torch.load(weights))
    return made, (torch.zeros(1, 3, 8, 8), torch.zeros(1, 4))
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "model.py"
    path.write_text(text)
    return path


def test_the_network_computes_what_pytorch_does_and_keeps_its_names(tmp_path: Path) -> None:
    path = written(tmp_path, NETWORK)
    trained: Any = runpy.run_path(str(path))["network"]()[0].eval()
    trained.norm.running_mean += 0.3
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    image, extra = torch.randn(3, 3, 8, 8), torch.randn(3, 4)
    with torch.no_grad():
        expected = trained(image, extra)
    model = load_pytorch(path, "network", tmp_path / "weights.pt").model
    assert [tensor.name for tensor in model.inputs] == ["image", "extra"]
    assert model.input_shape == [(None, 8, 8, 3), (None, 4)]
    assert {layer.name for layer in model.layers if layer.weights} == {"stem", "head"}
    made = model([np.moveaxis(image.numpy(), 1, -1), extra.numpy()])
    for name, output in zip(("scores", "shifted"), made, strict=True):
        np.testing.assert_allclose(np.asarray(output), expected[name].numpy(), atol=1e-5)
    random = [load_pytorch(path, "network").model.get_weights() for _ in range(2)]
    assert all(np.array_equal(one, other) for one, other in zip(*random, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def network(:", "a file that fails: SyntaxError"),
        ("import nothing_like_it", "a file that fails: ModuleNotFoundError in line 1: No module named"),
        ("def other():\n    pass", "no function network; expected a function network in the file"),
        ("def network():\n    return 1 / 0", "a call of network that fails: ZeroDivisionError in line 2"),
        ("def network(path):\n    pass", "expected a function without arguments, or with the file after"),
        ("def network():\n    return 3", "a function that returns int, NoneType"),
        ("import sys\ndef network():\n    sys.exit(3)", "its process ended with exit code 3"),
        (NETWORK.replace("zeros(1, 3,", "zeros(1, 2,"), "fails for its example: RuntimeError in line 12"),
        (NETWORK.replace("torch.zeros(1, 4)", "torch.tensor(3.0)"), "an example without axes"),
    ],
)  # fmt: skip
def test_calls_without_a_network_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(MistifyError) as caught:
        load_pytorch(path, "network")
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert caught.value.problems[0].place == str(path)
    assert expected in str(caught.value)


def test_the_newer_exporter_keeps_small_constants(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    # The older exporter has no rms_norm, and the newer one's optimizer would leave out the addition.
    finite = '"shifted": torch.log(torch.nn.functional.rms_norm(hidden, (4,)) + extra.relu() + 1e-9)'
    path = written(tmp_path, NETWORK.replace('"shifted": hidden + extra', finite))
    trained: Any = runpy.run_path(str(path))["network"]()[0].eval()
    torch.nn.init.constant_(trained.norm.bias, -9)  # no value is left of the ReLU
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    image, extra = torch.randn(3, 3, 8, 8), torch.randn(3, 4)
    with torch.no_grad():
        expected = trained(image, extra)["shifted"].numpy()
    assert np.isclose(expected.min(), np.log(1e-9))
    model = load_pytorch(path, "network", tmp_path / "weights.pt").model
    made = model([np.moveaxis(image.numpy(), 1, -1), extra.numpy()])[1]
    np.testing.assert_allclose(np.asarray(made), expected, atol=1e-4)


def test_operators_that_onnx_lacks_are_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    sorted_ = NETWORK.replace('"shifted": hidden + extra', '"shifted": hidden.sort(1).values')
    path = written(tmp_path, sorted_)
    with pytest.raises(MistifyError, match="operators that are not supported: TopK") as caught:
        load_pytorch(path, "network")
    assert caught.value.problems[0].place.startswith(str(path))

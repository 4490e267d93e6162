"""A network trained in PyTorch, from its ONNX file to packages on the device."""

import hashlib
import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import httpx
import onnx
import torch

from executors.readers.builtin import read_builtin
from mistify.uploads import FileDigest, listing_text
from mistify_client import load
from tests.end_to_end.test_sources import DIGITS, SETTINGS, goals_in, port
from tests.support.onnx_files import model, node, normal, outputs_of, quantized, written
from tests.support.servers import MISTIFY, server, web_server


def trained(path: Path) -> None:
    """Train a residual network on the digits, and export it with a free batch size."""
    torch.manual_seed(0)

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(channels)
            self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.bn2 = torch.nn.BatchNorm2d(channels)

        def forward(self, x):  # type: ignore[no-untyped-def]
            inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(x + inner)

    network = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), Block(16)),
        *(torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.ReLU(), Block(32)),
        *(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)),
    )
    data = read_builtin("builtin:digits-train")
    images = torch.from_numpy(np.moveaxis(data["x"], -1, 1).astype(np.float32))
    labels = torch.from_numpy(data["y"].astype(np.int64).reshape(-1))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for _ in range(12):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
        slower.step()
    names = {"input_names": ["image"], "output_names": ["digit"]}
    free = {"dynamic_axes": {"image": {0: "n"}, "digit": {0: "n"}}}
    torch.onnx.export(network.eval(), (images[:2],), path, dynamo=False, opset_version=17, **names, **free)


@pytest.mark.slow
def test_a_network_from_pytorch_is_cut_to_half_and_quantized(tmp_path: Path) -> None:
    trained(tmp_path / "net.onnx")
    goal = {"model": "net.onnx", "dataset": DIGITS}
    goals = [
        {"id": "same", "adaptation_goal": {"FLOP": "1x"}, **goal},
        {"id": "half", "adaptation_goal": {"FLOP": "0.5x", "accuracy": "0.95"}, **goal},
        {
            "id": "int8",
            "quantization": "int8",
            "adaptation_goal": {"FLOP": "0.5x", "accuracy": "0.95"},
            **goal,
        },
    ]
    done = port(tmp_path, goals)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: each["met"] for name, each in goals_in(tmp_path).items()} == dict.fromkeys(
        ("same", "half", "int8"), True
    )
    images = read_builtin("builtin:digits-test")["x"][:100].astype(np.float32)
    (expected,) = outputs_of(tmp_path / "net.onnx", {"image": np.moveaxis(images, -1, 1)})
    for name in ("half", "int8"):
        model = load(tmp_path / "out" / "goals" / name)
        answers = np.asarray(model(images)).argmax(-1)
        assert np.mean(answers == expected.argmax(-1)) >= 0.9
    for name in ("same", "half"):
        check_exported(tmp_path / "out" / "goals" / name, images)
    refused = export(tmp_path / "out" / "goals" / "int8")
    assert refused.returncode == 2
    assert "int8 weights" in refused.stderr


def export(package: Path) -> subprocess.CompletedProcess[str]:
    file = package.with_suffix(".onnx")
    return subprocess.run(
        [MISTIFY, "export", package, "--onnx", file], capture_output=True, text=True, check=False
    )


def check_exported(package: Path, images: np.ndarray) -> None:
    """Export a package, and compare it with the package in the names and the layout of its source."""
    done = export(package)
    assert done.returncode == 0, done.stderr
    proto = onnx.load(package.with_suffix(".onnx"))
    kinds = [node.op_type for node in proto.graph.node]
    assert (kinds.count("Conv"), kinds.count("Gemm")) == (6, 1)
    assert not {"Transpose", "Pad"}.intersection(kinds)
    assert [output.name for output in proto.graph.output] == ["digit"]
    (made,) = outputs_of(package.with_suffix(".onnx"), {"image": np.moveaxis(images, -1, 1)})
    expected = np.asarray(load(package)(images))
    np.testing.assert_allclose(made, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_a_quantized_file_is_packaged_with_its_own_ranges(tmp_path: Path) -> None:
    """Only the goal that changes its network is calibrated anew."""
    trained(tmp_path / "float.onnx")
    rows = (np.moveaxis(read_builtin("builtin:digits-train")["x"][:100], -1, 1)).astype(np.float32)
    quantized(tmp_path / "float.onnx", tmp_path / "net.onnx", ({"image": row[None]} for row in rows))
    goal = {"model": "net.onnx", "dataset": DIGITS, "quantization": "int8"}
    goals = [
        {"id": "same", "adaptation_goal": {"FLOP": "1x"}, **goal},
        {"id": "half", "adaptation_goal": {"FLOP": "0.5x"}, **goal},
    ]
    settings = {"algorithm": {"name": "morphnet", "config": {**SETTINGS, "source_steps": 0}}}
    done = port(tmp_path, [{**each, **settings} for each in goals])
    assert done.returncode == 0, done.stdout + done.stderr
    notes = {name: each["note"] for name, each in goals_in(tmp_path).items()}
    note = "integers have the ranges of the source's own quantization"
    assert {name: note in each for name, each in notes.items()} == {"same": True, "half": False}
    images = read_builtin("builtin:digits-test")["x"][:100].astype(np.float32)
    (expected,) = outputs_of(tmp_path / "net.onnx", {"image": np.moveaxis(images, -1, 1)})
    scores = np.asarray(load(tmp_path / "out" / "goals" / "same")(images))
    assert np.mean(scores.argmax(-1) == expected.argmax(-1)) >= 0.98
    np.testing.assert_allclose(scores, expected, atol=0.03 * np.ptp(expected))


@pytest.mark.slow
def test_data_and_apps_may_have_channels_first(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "image conv.weight", "c"),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f head.weight", "digit", transB=1),
    ]
    weights = {"conv.weight": normal(8, 3, 3, 3), "head.weight": normal(4, 8)}
    proto = model(nodes, {"image": ["n", 3, 6, 5]}, weights, outputs=["digit"])
    written(tmp_path / "net.onnx", proto)
    images = np.random.default_rng(0).normal(size=(80, 3, 6, 5)).astype(np.float32)
    (scores,) = outputs_of(tmp_path / "net.onnx", {"image": images})
    np.savez(tmp_path / "first.npz", image=images, digit=scores.argmax(-1))
    np.savez(tmp_path / "last.npz", image=np.moveaxis(images, 1, -1), digit=scores.argmax(-1))
    data = {"train": "first.npz", "test": "last.npz"}
    goal = {"id": "same", "dataset": data, "adaptation_goal": {"FLOP": "1x"}}
    refused = port(tmp_path, [{**goal, "model": "net.onnx"}])
    assert "got image of shape (80, 3, 6, 5)" in " ".join((refused.stdout + refused.stderr).split())
    done = port(tmp_path, [{**goal, "model": "net.onnx?layout=channels_first"}])
    assert done.returncode == 0, done.stdout + done.stderr
    package = load(tmp_path / "out" / "goals" / "same")
    (info,) = package.inputs
    assert (info.name, info.shape, info.channels_first) == ("image", (-1, 6, 5, 3), True)
    first, last = package(images[:9]), package(np.moveaxis(images[:9], 1, -1))
    np.testing.assert_array_equal(first, last)
    assert np.mean(np.asarray(first).argmax(-1) == scores[:9].argmax(-1)) >= 0.8


def small_network() -> onnx.ModelProto:
    """Return a network of two convolutions and a dense layer, with PyTorch's names."""
    nodes = [
        *(node("Conv", "image stem.0.weight", "a", strides=[2, 2]), node("Relu", "a", "b")),
        *(node("Conv", "b layer1.conv.weight", "c"), node("Relu", "c", "d")),
        *(node("GlobalAveragePool", "d", "e"), node("Flatten", "e", "f")),
        node("Gemm", "f fc.weight", "digit", transB=1),
    ]
    weights = {
        "stem.0.weight": normal(8, 1, 3, 3),
        "layer1.conv.weight": normal(16, 8, 2, 2),
        "fc.weight": normal(10, 16),
    }
    return model(nodes, {"image": ["n", 1, 8, 8]}, weights, outputs=["digit"])


def uploaded(web: httpx.Client, content: bytes, name: str) -> str:
    """Upload a file by HTTP; return its name for configs."""
    sha256 = hashlib.sha256(content).hexdigest()
    assert web.put(f"/v1/files/{sha256}", content=content).status_code == 200
    return f"upload:{sha256}/{name}"


@pytest.mark.slow
def test_a_file_is_uploaded_by_http_and_rules_name_its_pytorch_modules(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save_model(
        small_network(), path, save_as_external_data=True, location="net.onnx.data", size_threshold=0
    )
    goal = {"id": "half", "dataset": DIGITS, "adaptation_goal": {"FLOP": "0.5x"}}

    def planned(name: str, layers: dict[str, str]) -> Any:
        algorithm = {"name": "morphnet", "config": {"layers": layers}}
        config = json.dumps([{**goal, "model": name, "algorithm": algorithm}])
        return web.post("/v1/plans", content=config).json()

    with web_server(tmp_path / "store") as url, httpx.Client(base_url=url, timeout=300) as web:
        name = uploaded(web, small_network().SerializeToString(), "net.onnx")
        kept = planned(name, {"stem.*": "keep"})
        unknown = planned(name, {"layer1.convolution": "keep"})
        files = {each.name: each.read_bytes() for each in (path, tmp_path / "net.onnx.data")}
        for each, content in files.items():
            uploaded(web, content, each)
        digests = {
            each: FileDigest(hashlib.sha256(content).hexdigest(), len(content))
            for each, content in files.items()
        }
        divided = planned(f"{uploaded(web, listing_text(digests), 'net')}/", {})
    batch, other = kept["batches"][0], divided["batches"][0]
    for found in (batch, other):
        assert found["source_costs"]["params"] == 9 * 8 + 4 * 8 * 16 + 160
    (problem,) = unknown["problems"]
    assert problem["value"] == '"layer1.convolution"'
    assert "layer1.conv" in problem["expected"] + problem["fix"]


CODE = """
import torch
from torch import nn

def layers():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))

def network(weights):
    made = layers()
    made.load_state_dict(torch.load(weights))
    return made, torch.zeros(1, 1, 8, 8)
"""


def planned(base: Path, model: str, address: str) -> subprocess.CompletedProcess[str]:
    goal = {"id": "half", "model": model, "dataset": DIGITS, "adaptation_goal": {"FLOP": "0.5x"}}
    (base / "goals.json").write_text(json.dumps([goal]))
    return subprocess.run(
        [MISTIFY, "plan", base / "goals.json", "--json", "--server", address],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_files_with_external_data_and_functions_are_sent_to_a_server(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(CODE)
    layers: Any = runpy.run_path(str(tmp_path / "model.py"))["layers"]
    network, example = layers(), torch.zeros(1, 1, 8, 8)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    names = {"input_names": ["image"], "output_names": ["digit"]}
    free = {"dynamic_axes": {"image": {0: "n", 2: "height", 3: "width"}}}
    torch.onnx.export(network, (example,), tmp_path / "whole.onnx", dynamo=False, **names, **free)
    proto, path = onnx.load(tmp_path / "whole.onnx"), tmp_path / "net.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    code = "model.py:network?weights=weights.pt&layout=channels_first"
    with server(tmp_path / "strict") as (address, _):
        sized = planned(tmp_path, "net.onnx?image=1,8,8", address)
        free_sizes = planned(tmp_path, "net.onnx", address)
        refused = planned(tmp_path, code, address)
    assert sized.returncode == 0, sized.stderr
    assert "an input 'image' with free sizes" in " ".join(free_sizes.stderr.split())
    assert "--allow-code" in refused.stderr
    with server(tmp_path / "open", "--allow-code") as (address, _):
        called = planned(tmp_path, code, address)
    assert called.returncode == 0, called.stderr
    first, second = (json.loads(done.stdout)["batches"][0] for done in (sized, called))
    assert first["source_costs"]["params"] == second["source_costs"]["params"] == 4 * 10 + 145 * 10
    assert first["present_accuracy"] == second["present_accuracy"]

"""A supernet from the config to the device: ported, adapted there, and run."""

import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import mistify_client
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import NETWORK, Manifest
from mistify.tflite.combining import read_network
from mistify_client.assembly.stitching import stitched
from mistify_client.cli.main import app
from tests.executors.algorithms.adaptivenet.conftest import deep_resnet
from tests.executors.structure.networks import randomised
from tests.mistify_client.chains import load_chain
from tests.support.servers import server

SETTINGS = {
    "source_steps": 0, "distil_steps": 10, "path_steps": 10, "tune_steps": 0, "largest": 0.1, "merge": [2],
    "shrink": [0.5], "blocks": True,
}  # fmt: skip


def ported(directory, **changes):
    """Return the package of one goal, ported by an embedded server."""
    randomised(deep_resnet()).save(directory / "network.keras")
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        labels = rng.integers(0, 10, 200)
        np.savez(directory / f"{name}.npz", image=rng.uniform(size=(200, 8, 8, 1)), digit=labels)
    config = {
        "id": "phones",
        "model": "network.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "algorithm": {"name": "adaptivenet", "config": {**SETTINGS, **changes}},
        "adaptation_goal": {"FLOP": "0.8x"},
        "quantization": "none",
    }
    (directory / "config.json").write_text(json.dumps(config))
    arguments = ["port", str(directory / "config.json"), "--out", str(directory / "out")]
    done = CliRunner().invoke(app, [*arguments, "--store", str(directory / "store")])
    assert done.exit_code == 0, done.output
    return directory / "out" / "goals" / "phones"


def shapes_of(network):
    """Count the multidimensional shapes among the constants of a network."""
    model = read_network(network)
    tensors = {tensor.buffer: tuple(tensor.shape) for graph in model.subgraphs for tensor in graph.tensors}
    constants = (shape for at, shape in tensors.items() if model.buffers[at].data is not None)
    return Counter(shape for shape in constants if len(shape) > 1)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return ported(tmp_path_factory.mktemp("elastic"))


@pytest.mark.slow
def test_a_package_without_blocks_states_the_reason(tmp_path):
    """The whole network is one block, so that no block can be replaced."""
    package = ported(tmp_path, largest=1.0, adapt_steps=2, cuts=1)
    assert BLOCKS not in Manifest.load(package).files
    (goal,) = json.loads((tmp_path / "out" / "report.json").read_text())["goals"]
    assert "without blocks: no part of this model can be replaced" in goal["note"]
    assert 'blocks of at most 100% of it ("largest")' in goal["note"]


def test_a_package_lists_its_blocks(package):
    store = BlockStore.load(package)
    listed = Manifest.load(package).files
    assert {BLOCKS, *(variant.file for variant in store.variants)} < listed.keys()
    assert store.kinds["digit"] == "softmax"


def test_the_number_of_networks_is_reported(package):
    variants = BlockStore.load(package).variants

    def ways(start):
        following = [variant.end for variant in variants if variant.start == start]
        return sum(map(ways, following)) if following else 1

    (goal,) = json.loads((package.parent.parent / "report.json").read_text())["goals"]
    assert f"with blocks that make {ways(0):,} networks" in goal["note"]


def test_a_package_lists_the_blocks_of_its_network(package):
    """Together they form the shipped network."""
    store = BlockStore.load(package)
    chosen = store.network_of(store.served)
    assert any(one.file.count("-shrink-") or one.file.count("-merge-") for one in chosen)
    own = stitched({one.file: (package / one.file).read_bytes() for one in chosen})
    assert shapes_of(own) == shapes_of((package / "serve.tflite").read_bytes())
    images = np.random.default_rng(4).uniform(size=(20, 8, 8, 1)).astype(np.float32)
    chained = load_chain(package, store.served, 1)({"image": images})["digit"]
    np.testing.assert_allclose(mistify_client.load(package)(images), chained, atol=1e-5)
    original = [f"block-{number:02d}.tflite" for number in range(store.last)]
    whole = stitched({file: (package / file).read_bytes() for file in original})
    assert shapes_of(own) != shapes_of(whole)


@pytest.mark.slow
def running(model):
    """Return the running option."""
    return next(option for option in model.options if option.id == model.running)


def test_a_device_downloads_the_blocks_that_it_may_use(package, tmp_path):
    root = package.parent.parent.parent
    job = json.loads((root / "out" / "report.json").read_text())["job"]
    images = np.random.default_rng(3).uniform(size=(60, 8, 8, 1)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", image=images)
    blocks = {variant.file for variant in BlockStore.load(package).variants}
    fetched = tmp_path / "out" / "goals" / "phones"
    with server(root / "store") as (address, _):
        run = partial(CliRunner().invoke, app)
        done = run(["fetch", job, "--server", address, "--out", str(tmp_path / "out"), "--without-blocks"])
        assert done.exit_code == 0, done.output
        assert not blocks & {path.name for path in fetched.iterdir()}
        arguments = ["--package", str(fetched), "--data", str(tmp_path / "mine.npz"), "--latency", "0.9x"]
        done = run(["adapt", *arguments])
        assert done.exit_code == 0, done.output
    here = {path.name for path in fetched.iterdir()} & blocks
    assert here
    model = mistify_client.load(fetched)
    assert {*here, NETWORK}.issuperset(running(model).blocks)


def test_a_device_runs_the_chosen_subnet(package, tmp_path):
    """With enough time, it chooses the original network, which agrees with itself best."""
    data = tmp_path / "mine.npz"
    images = np.random.default_rng(3).uniform(size=(60, 8, 8, 1)).astype(np.float32)
    np.savez(data, image=images)
    shipped = mistify_client.load(package)(images)
    arguments = ["adapt", "--package", str(package), "--data", str(data), "--latency", "1x", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    model = mistify_client.load(package)
    assert np.abs(model(images) - shipped).max() > 1e-6
    assert running(model).blocks

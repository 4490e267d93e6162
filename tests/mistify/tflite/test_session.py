"""Networks that run batches of several sizes in one interpreter."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mistify.costs.operators import Operation, OperatorKind
from mistify.profiling.networks import network_of
from mistify.tflite import session as module
from mistify.tflite.combining import CombinedNetwork, read_network
from mistify.tflite.session import Session
from tests.support.paths import DATA

#: Runs batches of several sizes, and prints the private memory that each adds, in bytes.
MEMORY = """
import sys
from pathlib import Path
import numpy as np
from mistify.tflite.session import Session

def private_bytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

session = Session(Path(sys.argv[1]).read_bytes(), 1)
session({"image": np.zeros((1, 1024), np.float32)})
before = private_bytes()
for batch in (4, 8, 2):
    session({"image": np.zeros((batch, 1024), np.float32)})
print(private_bytes() - before)
"""


@pytest.fixture
def session() -> Session:
    return Session((DATA / "tiny.tflite").read_bytes(), 1)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(9, 4, 4, 1)).astype(np.float32)


def dense_network(path: Path) -> Path:
    """Return a network with 4 MiB of weights, `image` -> `scores`."""
    network = read_network(network_of([Operation(OperatorKind.DENSE, 1, 1024, 1024)], integer=False))
    (graph,), named = network.subgraphs, CombinedNetwork()
    tensors, operators = named.parts_of(network, graph)
    ends = {"image": int(graph.inputs[0])}, {"scores": int(graph.outputs[0])}
    named.add("serving_default", tensors, operators, *ends)
    path.write_bytes(named.packed())
    return path


def test_batches_of_any_size_in_any_order_give_the_outputs_of_single_examples(session, image):
    each = np.concatenate([session({"image": row[None]})["scores"] for row in image])
    for batch in (1, 4, 8, 2, 9, 1, 3):
        np.testing.assert_allclose(session({"image": image[:batch]})["scores"], each[:batch], atol=1e-6)


def test_outputs_are_copies_owned_by_the_caller(session, image):
    first = session({"image": image[:1]})["scores"]
    kept = first.copy()
    session({"image": image[1:2]})
    np.testing.assert_array_equal(first, kept)


def test_weights_are_packed_only_once_for_all_batch_sizes(tmp_path):
    path = dense_network(tmp_path / "dense.tflite")
    done = subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < path.stat().st_size / 2


def test_the_network_is_reopened_after_inputs_that_litert_refuses(session, image, monkeypatch):
    opened = []

    def counted(network, threads):
        opened.append(network)
        return open_interpreter(network, threads)

    open_interpreter = module.open_interpreter
    monkeypatch.setattr(module, "open_interpreter", counted)
    expected = session({"image": image})["scores"]
    for run in (session, lambda tensors: session.run("serving_default", tensors)):
        opened.clear()
        with pytest.raises(RuntimeError):
            run({"image": np.zeros((1, 5, 5, 1), np.float32)})
        assert len(opened) == 1
        np.testing.assert_array_equal(run({"image": image})["scores"], expected)


def test_signatures_do_not_affect_each_other(image):
    session = Session((DATA / "tiny_branches.tflite").read_bytes(), 1)
    expected = [session.run(f"branch_{branch}", {"image": image})["scores"] for branch in range(3)]
    for batch in (1, 5, 2):
        for branch in range(3):
            actual = session.run(f"branch_{branch}", {"image": image[:batch]})["scores"]
            np.testing.assert_allclose(actual, expected[branch][:batch], atol=1e-6)


def test_sessions_of_one_file_run_in_parallel_threads(image):
    content = (DATA / "tiny.tflite").read_bytes()
    expected = Session(content, 1)({"image": image})["scores"]

    def run(_):
        own = Session(content, 1)
        return [own({"image": image[:batch]})["scores"] for batch in (1, 4, 9)]

    with ThreadPoolExecutor(4) as pool:
        for outputs in pool.map(run, range(20)):
            for actual in outputs:
                np.testing.assert_allclose(actual, expected[: len(actual)], atol=1e-6)


def test_an_invalid_network_is_refused():
    with pytest.raises(ValueError, match="model"):
        Session(b"no network at all", 1)

"""Resource limits for loading models, tested in separate processes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.executors.inspection.corpus import config_of, layer, rewritten, weights_of
from tests.executors.inspection.networks import save_good_model
from tests.executors.inspection.test_inspection import PEAK

#: Loads the given files, and prints the problem and the peak memory of each.
CHILD = f"""{PEAK}
import os, resource, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from executors.sources.keras.loading import load_keras
from mistify.errors import MistifyError
load_keras(Path(sys.argv[1]))
limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)]
before = peak()
for name in sys.argv[2:]:
    try:
        load_keras(Path(name))
    except MistifyError as error:
        print(error.code.name, error.problems[0])
    else:
        sys.exit(name + " was accepted")
assert limits == [resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)]
load_keras(Path(sys.argv[1]))
print(peak() - before)
"""

BUSY = """
import time
from executors.sources.resource_limits import limited_resources
from mistify.errors import MistifyError
try:
    with limited_resources("model.keras", 2**30, seconds=1):
        while True:
            pass
except MistifyError as error:
    print(error)
"""


def run(script: str, *arguments: str) -> list[str]:
    child = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.splitlines()


def with_weights(good: Path, path: Path, change: Callable[[Any], None]) -> Path:
    """Write a copy of a model with changed weights."""
    with weights_of(good) as weights:
        change(weights)
        weights.flush()
        image = weights.id.get_file_image()
    rewritten(good, path, weights=image)
    return path


def explode(good: Path, path: Path) -> Path:
    """Few weights are stored, and no single layer declares their number, 10^5 x 10^5."""
    config = config_of(good)
    inputs, dense = layer(config, "InputLayer"), layer(config, "Dense")
    inputs["config"]["batch_shape"] = [None, 100_000]
    call = dense["inbound_nodes"][0]["args"][0]["config"]
    call.update(shape=[None, 100_000], keras_history=[inputs["name"], 0, 0])
    dense["config"]["units"] = 100_000
    dense.pop("build_config", None)
    config["config"]["layers"] = [inputs, dense]
    with_weights(good, path, lambda weights: weights.create_dataset("more", data=np.ones(10**6, np.uint8)))
    rewritten(Path(path), path.with_suffix(".2.keras"), config=json.dumps(config).encode())
    return path.with_suffix(".2.keras")


def fill(name: str) -> Callable[[Any], None]:
    return lambda weights: weights[name].write_direct(np.full(weights[name].shape, np.nan, np.float32))


def reshape(weights: Any) -> None:
    del weights["layers/dense/vars/0"]
    weights["layers/dense/vars/0"] = np.ones((6, 4), np.float32)


def remove(weights: Any) -> None:
    del weights["layers/dense/vars"]


@pytest.mark.slow
def test_problems_found_during_loading_use_little_memory(tmp_path: Path) -> None:
    good = save_good_model(tmp_path)
    with weights_of(good) as weights:
        assert weights["layers/dense/vars/0"].shape == (6, 3)
    reported = {
        explode(good, tmp_path / "exploding.keras"): "a model that needs more than 2.0 GiB to load",
        with_weights(
            good, tmp_path / "nan.keras", fill("layers/conv2d/vars/0")
        ): "NaN or infinity in conv/kernel",
        with_weights(good, tmp_path / "other.keras", reshape): "a file that Keras cannot load",
        with_weights(good, tmp_path / "missing.keras", remove): "a file that Keras cannot load",
    }
    *lines, memory = run(CHILD, str(good), *map(str, reported))
    for line, (path, text) in zip(lines, reported.items(), strict=True):
        assert line.startswith(f"INVALID_MODEL {path}: got {text}")
    assert int(memory) < 500


@pytest.mark.slow
def test_a_model_that_loads_too_slowly_is_given_up() -> None:
    _, problem = run(BUSY)
    assert problem.startswith("  model.keras: got a model that takes more than 1 s to load; expected")

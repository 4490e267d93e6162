"""A model with custom layers is ported if the plug-in that registers them is installed."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.plug_ins import LAYERS, environment, install_example, installed
from tests.support.servers import MISTIFY

MAKE = """
import sys
import keras
from my_layers import Block, Scale

keras.utils.set_random_seed(0)
image = keras.Input((8, 8, 1))
x = Scale(name="scale")(keras.layers.Conv2D(24, 3, activation="relu", name="stem")(image))
x = keras.layers.GlobalAveragePooling2D()(Block(24, name="block")(x))
keras.Model(image, keras.layers.Dense(10, "softmax")(x)).save(sys.argv[1])
"""
GOAL = {
    "id": "half",
    "model": "own.keras",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
    "algorithm": {
        "name": "morphnet",
        "config": {"source_steps": 0, "adapt_steps": 8, "cuts": 2, "tune_steps": 2, "max_steps": 10},
    },
    "adaptation_goal": {"FLOP": "0.5x"},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example(tmp_path_factory.mktemp("plug-in") / "site", "layers", LAYERS)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Path:
    """Return a directory with a model and a goal for it."""
    directory = tmp_path_factory.mktemp("layers")
    (directory / "goals.json").write_text(json.dumps([GOAL]))
    command = [sys.executable, "-c", MAKE, str(directory / "own.keras")]
    subprocess.run(command, check=True, env=environment(site))
    return directory


def run(*command: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, env=env, check=False)


def add_model(work: Path, store: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    add = [sys.executable, "-m", "mistify_server.cli", "models", "add", "own", work / "own.keras"]
    return run(*add, "--store", store, env=env)


@pytest.mark.slow
def test_a_model_with_custom_layers_is_ported_with_the_plug_in(work: Path, site: Path) -> None:
    done = run(MISTIFY, "port", work / "goals.json", "--out", work / "out", env=environment(site))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((work / "out" / "report.json").read_text())
    (goal,) = report["goals"]
    assert goal["met"]
    assert 0.4 < goal["achieved"]["flops"] / report["source"]["flops"] <= 0.5
    assert goal["achieved"]["params"] < 0.8 * report["source"]["params"]


def test_a_model_with_custom_layers_is_registered_with_the_plug_in(
    work: Path, site: Path, tmp_path: Path
) -> None:
    done = add_model(work, tmp_path, environment(site))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_model_with_custom_layers_is_refused_without_the_plug_in(work: Path, tmp_path: Path) -> None:
    ported = run(MISTIFY, "port", work / "goals.json", "--out", tmp_path / "out", env=environment())
    for done in (ported, add_model(work, tmp_path / "store", environment())):
        assert done.returncode == 2
        reported = " ".join(done.stderr.split())
        assert "is a Block of my_layers" in reported or "is a Scale of my_layers" in reported
        assert "install a plug-in that registers it" in reported


@pytest.mark.slow
def test_the_error_names_a_plug_in_that_cannot_be_imported(work: Path, tmp_path: Path) -> None:
    broken = installed(tmp_path / "site", "my_layers", "import no_such_module", {"mine": "my_layers"}, LAYERS)
    done = run(MISTIFY, "port", work / "goals.json", "--out", tmp_path / "out", env=environment(broken))
    assert done.returncode == 2
    assert "No module named 'no_such_module'" in " ".join(done.stderr.split())

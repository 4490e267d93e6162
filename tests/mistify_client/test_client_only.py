"""The client in a separate environment, after only `pip install .[client]`."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from mistify_server.web.client_wheel import client_wheel
from tests.support.paths import REPOSITORY

PARTS = ("mistify", "mistify_client", "mistify_server", "executors", "pyproject.toml", "README.md", "LICENSE")

INFER = """
import sys
import numpy
import mistify_client
import mistify_client.cli.main
model = mistify_client.load(sys.argv[1])
numpy.save(sys.argv[3], model(numpy.load(sys.argv[2])))
heavy = {"tensorflow", "keras", "tf_keras", "executors", "mistify_server"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """Install the client from a copy of the repository into a new environment; return its `bin` directory."""
    root = tmp_path_factory.mktemp("client-only")
    (root / "source").mkdir()
    for part in PARTS:
        path = REPOSITORY / part
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, root / "source" / part, ignore=ignored)
        elif path.exists():
            shutil.copy(path, root / "source")
    venv.create(root / "venv")
    binaries = root / "venv" / "bin"
    run(*pip(binaries), "install", "--quiet", "--no-compile", f"{root / 'source'}[client]")
    return binaries


def pip(binaries: Path) -> list[object]:
    """Return the outer pip's command for an environment, which so needs no pip."""
    return [sys.executable, "-m", "pip", "--python", binaries / "python"]


def run(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MISTIFY_"))
    }
    finished = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=outside, cwd="/"
    )
    assert not check or finished.returncode == 0, finished.stdout + finished.stderr
    return finished


def test_weights_of_builtin_models_are_installed(environment):
    weights = "executors/sources/keras/digits-resnet.weights.h5"
    (installed,) = environment.parent.glob(f"lib/*/site-packages/{weights}")
    assert installed.read_bytes() == (REPOSITORY / weights).read_bytes()


def test_tensorflow_is_not_installed(environment):
    installed = run(*pip(environment), "list", "--format=freeze").stdout.casefold()
    assert "ai-edge-litert" in installed
    assert "tensorflow" not in installed
    assert "keras" not in installed


def test_a_package_is_loaded_and_runs(environment, package, expected, tmp_path):
    np.save(tmp_path / "x.npy", expected["image"])
    run(environment / "python", "-c", INFER, package, tmp_path / "x.npy", tmp_path / "y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected["scores"], atol=1e-6)


def test_a_package_runs_with_the_wheel_that_a_server_offers(environment, package, expected, tmp_path):
    wheel, target = tmp_path / client_wheel().name, tmp_path / "alone"
    wheel.write_bytes(client_wheel().content)
    run(*pip(environment), "install", "--no-index", "--no-deps", "--target", target, wheel)
    np.save(tmp_path / "x.npy", expected["image"])
    first = f"import sys; sys.path.insert(0, {str(target)!r})\n"
    last = f"assert mistify_client.__file__.startswith({str(target)!r})\n"
    run(environment / "python", "-c", first + INFER + last, package, tmp_path / "x.npy", tmp_path / "y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected["scores"], atol=1e-6)


def test_the_memory_for_stitched_subnets_is_known(environment):
    run(
        environment / "python",
        "-c",
        "from mistify_client.assembly.memory import available_bytes; assert available_bytes() > 0",
    )


def test_a_package_runs_from_the_command_line(environment, package, expected, tmp_path):
    np.save(tmp_path / "x.npy", expected["image"])
    output = run(environment / "mistify", "run", package, "--input", tmp_path / "x.npy").stdout
    assert "latency: " in output


def test_the_error_without_a_server_says_how_to_install_one(environment, tmp_path):
    dataset = '{"train": "train.npz", "test": "test.npz"}'
    goals = f'[{{"id": "a", "model": "m", "dataset": {dataset}, "adaptation_goal": {{"FLOP": "0.5x"}}}}]'
    (tmp_path / "goals.json").write_text(goals)
    refused = run(
        environment / "mistify", "port", tmp_path / "goals.json", "--out", tmp_path / "out", check=False
    )
    assert refused.returncode == 8
    assert "pip install 'mistify-porting[server]'" in refused.stderr
    assert "Traceback" not in refused.stderr

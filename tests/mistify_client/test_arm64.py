"""The client on emulated ARM64: import, inference with each kind of package, and training steps."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mistify_client
from mistify_client.tuning.trainer import load_trainer
from tests.mistify_client.test_client_only import PARTS
from tests.support.arm64 import Arm64, machine, run, site_of
from tests.support.paths import DATA, REPOSITORY

pytestmark = pytest.mark.slow

INFER = """
import platform, sys
import numpy
import mistify_client
import mistify_client.cli.main
assert platform.machine() == "aarch64"
inputs = numpy.load(sys.argv[1])
model = mistify_client.load(sys.argv[2])
for branch in range(len(model.branches) or 1):
    if model.branches:
        model.switch(model.options[branch].id)
    numpy.save(f"{sys.argv[3]}/{branch}.npy", model(inputs))
"""

TRAIN = """
import sys
import numpy
import mistify_client
trainer = mistify_client.load_trainer(sys.argv[1])
images = numpy.random.default_rng(0).uniform(size=(8, 4, 4, 1)).astype(numpy.float32)
for _ in range(3):
    print(trainer.train_step(images, numpy.arange(8) % 3, learning_rate=0.01))
print(trainer.adapt_step(images, learning_rate=0.01))
"""


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Arm64:
    if shutil.which("apt-get") is None:
        pytest.skip("needs Debian's apt-get")
    return machine(tmp_path_factory.mktemp("arm64"))


@pytest.fixture(scope="module")
def site(arm64: Arm64, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the client from a wheel built from a copy of the repository."""
    directory = tmp_path_factory.mktemp("client")
    source = directory / "source"
    source.mkdir()
    for part in PARTS:
        path = REPOSITORY / part
        (shutil.copytree if path.is_dir() else shutil.copy)(path, source / part)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, source)
    (wheel,) = directory.glob("*.whl")
    return site_of(arm64, f"{wheel}[client]", directory / "site")


def inferred(arm64: Arm64, site: Path, package: Path, inputs: Any, directory: Path) -> list[Any]:
    """Return the outputs of the network, or of each branch."""
    np.save(directory / "inputs.npy", inputs)
    arm64.python(site, "-c", INFER, directory / "inputs.npy", package, directory)
    return [np.load(file) for file in sorted(directory.glob("[0-9].npy"))]


def test_float_networks_run_on_arm64(
    arm64: Arm64, site: Path, package: Path, expected: Any, tmp_path: Path
) -> None:
    (scores,) = inferred(arm64, site, package, expected["image"], tmp_path)
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-6)


def test_integer_networks_run_on_arm64(
    arm64: Arm64, site: Path, int8_package: Path, expected: Any, tmp_path: Path
) -> None:
    (scores,) = inferred(arm64, site, int8_package, expected["image"], tmp_path)
    (info,) = mistify_client.load(int8_package).outputs
    here = mistify_client.load(int8_package)(expected["image"])
    np.testing.assert_allclose(scores, here, atol=1.01 * (info.scale or 0))


def test_branches_run_on_arm64(
    arm64: Arm64, site: Path, branch_package: Path, expected: Any, tmp_path: Path
) -> None:
    scores = inferred(arm64, site, branch_package, expected["image"], tmp_path)
    np.testing.assert_allclose(scores, expected["branches"], atol=1e-5)


def test_training_runs_on_arm64(arm64: Arm64, site: Path) -> None:
    package = DATA / "trainable"
    assert load_trainer(package).training.batch_size == 8
    there = [float(line) for line in arm64.python(site, "-c", TRAIN, package).splitlines()]
    here = [float(line) for line in run(sys.executable, "-c", TRAIN, package).splitlines()]
    assert len(there) == 4
    np.testing.assert_allclose(there, here, rtol=1e-5)

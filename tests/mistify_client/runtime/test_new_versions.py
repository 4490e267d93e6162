"""Running models switch to new versions of a package, and retry those that cannot be loaded."""

import logging
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify_client import PortedModel, load
from mistify_client.runtime.interpreter import open_network
from mistify_client.runtime.loaded import LoadedVersion, recorded
from mistify_client.runtime.options import options_of
from mistify_client.runtime.statistics import observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, install, roll_back, state_directory
from tests.support.threads import without_threads


def join_loading() -> None:
    """Wait until no version is being loaded."""
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()


def test_a_running_model_switches_to_a_new_version_under_load(branch_package, package, expected):
    model = load(branch_package)
    model.switch("branch-2")
    old, new = expected["branches"][2], expected["scores"]
    started, over = threading.Barrier(5), threading.Event()

    def run(batch: int) -> list[bool]:
        """Run inferences until the end and one more, and return for each whether the new version ran."""
        image, seen, last = expected["image"][:batch], [], False
        started.wait()
        while not last:
            last = over.is_set()
            scores = model(image)
            seen.append(np.allclose(scores, new[:batch], atol=1e-6))
            assert seen[-1] or np.allclose(scores, old[:batch], atol=1e-6)
        return seen

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(run, n % 3 + 1) for n in range(4)]
        started.wait()
        install(branch_package, package)
        model(expected["image"])
        join_loading()
        over.set()
        for task in running:
            seen = task.result()
            assert seen[-1]
            assert seen == sorted(seen)
    assert model.branches == ()
    np.testing.assert_allclose(load(branch_package)(expected["image"]), new, atol=1e-6)


def test_an_installed_version_is_the_one_that_is_loaded(branch_package, expected):
    install(branch_package, branch_package)
    model = load(branch_package)
    (actual,) = observed(state_directory(branch_package))
    assert actual.generation == 1
    Switchboard.open(state_directory(branch_package)).option = 2
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][2], atol=1e-6)


def test_a_running_model_switches_to_the_last_of_several_versions(branch_package, package, expected):
    model = load(branch_package)
    for new in (package, branch_package, package, branch_package):
        install(branch_package, new)
        model(expected["image"])
    join_loading()
    assert model.wanted == "branch-1"
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][1], atol=1e-6)
    (actual,) = [actual for actual in observed(state_directory(branch_package)) if actual.inferences.size]
    assert actual.generation == 4


def test_the_previous_version_runs_again_after_a_rollback(branch_package, package, expected):
    model = load(branch_package)
    install(branch_package, package)
    model(expected["image"])
    join_loading()
    roll_back(branch_package)
    model(expected["image"])
    join_loading()
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][1], atol=1e-6)


@pytest.mark.parametrize(
    "source",
    [
        {"package": "job-1/half"},
        {"server": "127.0.0.1:1", "job": "job-1", "goal": "half", "cache": "."},
    ],
)
def test_a_new_version_is_loaded_after_a_change_of_the_working_directory(
    branch_package, package, expected, tmp_path, source
):
    directory = Path(shutil.copytree(branch_package, tmp_path / "job-1" / "half"))
    with chdir(tmp_path):
        model = load(**source)
    install(directory, package)
    model(expected["image"])
    join_loading()
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)


def damage(version: Path) -> None:
    (version / "serve.tflite").write_bytes(b"damaged")


def test_a_version_that_cannot_be_loaded_leaves_the_current_one_running(
    branch_package, package, expected, caplog
):
    model = load(branch_package)
    model(expected["image"])
    install(branch_package, package)
    damage(current(branch_package))
    for _ in range(3):
        model(expected["image"])
        join_loading()
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][1], atol=1e-6)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "keeps its current version" in warning.message
    (actual,) = observed(state_directory(branch_package))
    assert actual.generation == 0
    install(branch_package, package)
    model(expected["image"])
    join_loading()
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)


@dataclass
class Timed:
    """A model with a manually set clock in seconds."""

    package: Path
    now: float = 0.0

    def __post_init__(self) -> None:
        state = state_directory(self.package)
        package = Package.open(self.package)
        network = open_network(package, 1)
        loaded = recorded(LoadedVersion(network, options_of(package, state), package), state, 0)
        self.model = PortedModel(self.package, Switchboard.open(state), loaded, clock=lambda: self.now)

    def runs(self, now: float, image: np.ndarray) -> str:
        """Run an inference at this time, and return which version runs afterwards."""
        self.now = now
        self.model(image)
        join_loading()
        return "shipped" if self.model.branches else "new"


@contextmanager
def damaged(version: Path) -> Iterator[None]:
    """Make the network of a version unreadable within the block."""
    network = version / "serve.tflite"
    content = network.read_bytes()
    damage(version)
    try:
        yield
    finally:
        network.write_bytes(content)


@pytest.mark.parametrize("fault", [damaged, lambda version: without_threads()], ids=["file", "threads"])
def test_loading_a_version_is_retried_after_a_failure(branch_package, package, expected, caplog, fault):
    timed, image = Timed(branch_package), expected["image"]
    install(branch_package, package)
    with fault(current(branch_package)):
        assert [timed.runs(now, image) for now in (100, 159, 160)] == ["shipped"] * 3
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert [timed.runs(now, image) for now in (219, 220)] == ["shipped", "new"]
    assert [actual.generation for actual in observed(state_directory(branch_package))] == [1]
    np.testing.assert_allclose(timed.model(image), expected["scores"], atol=1e-6)


def test_a_newer_version_does_not_wait_for_the_retry_of_an_older_one(branch_package, package, expected):
    timed = Timed(branch_package)
    install(branch_package, package)
    damage(current(branch_package))
    assert timed.runs(100, expected["image"]) == "shipped"
    install(branch_package, package)
    assert timed.runs(101, expected["image"]) == "new"


def test_a_version_keeps_its_option_while_several_later_ones_cannot_be_loaded(
    branch_package, package, expected
):
    model, image = load(branch_package), expected["image"]
    model.switch("branch-2")
    for _ in range(2):
        install(branch_package, package)
        damage(current(branch_package))
        model(image)
        join_loading()
    shared = Switchboard.open(state_directory(branch_package))
    shared.option = 0  # of the last version
    np.testing.assert_allclose(model(image), expected["branches"][2], atol=1e-6)
    model.switch("branch-1")
    np.testing.assert_allclose(model(image), expected["branches"][1], atol=1e-6)
    assert shared.option == 0


def test_the_shipped_version_is_loaded_if_the_current_one_is_damaged(
    branch_package, package, expected, caplog
):
    install(branch_package, package)
    damage(current(branch_package))
    model = load(branch_package)
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][1], atol=1e-6)
    assert "is used as it was shipped" in caplog.text


def test_a_version_that_failed_during_load_is_retried(branch_package, package, expected):
    install(branch_package, package)
    with damaged(current(branch_package)):
        model = load(branch_package)
    assert [actual.generation for actual in observed(state_directory(branch_package))] == [0]
    model(expected["image"])
    join_loading()
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)
    assert [actual.generation for actual in observed(state_directory(branch_package))] == [1]


def test_a_model_keeps_running_when_its_files_are_removed(branch_package, package, expected):
    """Two installations later a version is removed, but may still run in an app."""
    install(branch_package, package)
    model = load(branch_package)
    (current(branch_package) / "serve.tflite").unlink()
    for batch in (1, 2, 3):
        np.testing.assert_allclose(model(expected["image"][:batch]), expected["scores"][:batch], atol=1e-6)


def test_a_version_runs_with_the_threads_that_it_was_measured_with(branch_package, expected, tmp_path):
    automatic, fixed = load(branch_package), load(branch_package, threads=2)
    newer = tmp_path / "newer"
    shutil.copytree(branch_package, newer)
    manifest = Manifest.load(newer)
    with_three = manifest.latency.model_copy(update={"threads": 3})
    manifest.model_copy(update={"latency": with_three}).save(newer)
    assert [threads_of(model) for model in (automatic, fixed)] == [1, 2]
    install(branch_package, newer)
    for model in (automatic, fixed):
        model(expected["image"])
    join_loading()
    assert [threads_of(model) for model in (automatic, fixed)] == [3, 2]


def threads_of(model: PortedModel) -> int:
    return model._loaded.network.threads

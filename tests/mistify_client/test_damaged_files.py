"""Damaged files of packages and device states only cause typed errors."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client import load
from mistify_client.cli.run import try_package
from mistify_client.monitor.config import load_config
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import write_changes
from mistify_client.runtime.versions import current, install, roll_back
from mistify_client.tuning import TrainingSettings, tune
from tests.mistify_client.tuning.devices import examples
from tests.support.paths import DATA

ONE_PASS = TrainingSettings(most_passes=1)
IMAGE = np.zeros((2, 4, 4, 1), np.float32)

#: Paths below the directory of the package and its state; `CURRENT` stands for the current version.
OF_PACKAGE = ("package", "package/manifest.json", "package/serve.tflite", "package/train.tflite")
OF_STATE = (
    *("package.state", "package.state/switchboard", "package.state/current", "package.state/previous"),
    *("package.state/versions", "CURRENT", "CURRENT/manifest.json", "CURRENT/serve.tflite"),
    *("package.state/runtimes", "package.state/pool.json", "package.state/origin.json"),
    *("package.state/monitor", "package.state/monitor/lock", "package.state/monitor/status.json"),
    *("package.state/monitor/targets.json", "package.state/tuning", "package.state/tuning/secret"),
)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def overwritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Damage the content of a file; leave directories unchanged."""

    def damage(path: Path) -> None:
        if path.is_file():
            path.write_bytes(change(path.read_bytes()))

    return damage


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Replace a file or directory by something else."""

    def damage(path: Path) -> None:
        remove(path)
        make(path)

    return damage


DAMAGES = {
    "cut": overwritten(lambda content: content[: len(content) // 2]),
    "emptied": overwritten(lambda content: b""),
    "random": overwritten(lambda content: np.random.default_rng(0).bytes(len(content))),
    "other JSON": overwritten(lambda content: b'[1, {"format_version": null}]'),
    "nested JSON": overwritten(lambda content: b"[" * 100_000),
    "a directory": replaced(Path.mkdir),
    "a file": replaced(lambda path: path.write_bytes(b"x")),
    "missing": replaced(lambda path: None),
    "a dangling link": replaced(lambda path: path.symlink_to("nowhere")),
    "a link to itself": replaced(lambda path: path.symlink_to(path.name)),
}

TYPICAL_DAMAGES = ("cut", "other JSON", "a directory")


def run_monitor(package: Path) -> None:
    config = package.with_name("monitor.toml")
    config.write_text('[targets]\nlatency = "20ms"\n')
    state = MonitorState.of(package)
    with state.held():
        monitor = Monitor(package, lambda: load_config(config, None), Journal(state.log, echo=None))
        monitor.step()
        monitor.close()


def run_command(package: Path) -> None:
    np.save(package.with_name("image.npy"), IMAGE)
    list(try_package(package, [package.with_name("image.npy")]))


ACTIONS: dict[str, Callable[[Path], object]] = {
    "load": lambda package: load(package)(IMAGE),
    "run": run_command,
    "monitor": run_monitor,
    "tune": lambda package: tune(
        package, examples(1, 40), settings=TrainingSettings(most_passes=1), threads=1
    ),
    "install": lambda package: install(package, DATA / "trainable"),
    "roll back": roll_back,
}


@pytest.fixture(scope="module")
def prototype(tmp_path_factory) -> Path:
    """Return a package that was monitored and has two later versions."""
    directory = tmp_path_factory.mktemp("device")
    package = shutil.copytree(DATA / "trainable", directory / "package")
    for _ in range(2):
        install(package, DATA / "trainable")
        run_monitor(package)
    state = MonitorState.of(package)
    write_changes(state.targets, {"latency": "10ms"})
    for name in ("pool.json", "origin.json", "tuning/secret", "runtimes/1-0"):
        path = directory / "package.state" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    return directory


@pytest.fixture
def device(prototype, tmp_path) -> Path:
    return shutil.copytree(prototype, tmp_path / "device", symlinks=True)


def damaged(device: Path, name: str, damage: str) -> Path:
    """Damage a file on a device, and return the package."""
    version = current(device / "package")
    DAMAGES[damage](device / name.replace("CURRENT", str(version)))
    return device / "package"


@pytest.mark.parametrize("name", OF_PACKAGE + OF_STATE)
@pytest.mark.parametrize(
    "damage",
    [name if name in TYPICAL_DAMAGES else pytest.param(name, marks=pytest.mark.slow) for name in DAMAGES],
)
def test_any_damage_causes_only_typed_errors(device, tmp_path, name, damage):
    for action, run in ACTIONS.items():
        copy = shutil.copytree(device, tmp_path / action, symlinks=True)
        with suppress(MistifyError):
            run(damaged(copy, name, damage))


@pytest.mark.parametrize("name", OF_STATE)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_package_loads_despite_any_damage_in_its_state(device, name, damage):
    expected = load(shutil.copytree(DATA / "trainable", device / "original"))(IMAGE)
    np.testing.assert_array_equal(load(damaged(device, name, damage))(IMAGE), expected)


@pytest.mark.parametrize("damage", ["a directory", "a file"])
def test_the_error_names_what_replaces_the_current_version(device, damage, caplog):
    package = damaged(device, "package.state/current", damage)
    load(package)
    assert (
        f"{package} is used as it was shipped: {device / 'package.state/current'} is not a link"
        in caplog.text
    )


def test_a_truncated_switchboard_is_recreated(device):
    package = damaged(device, "package.state/switchboard", "cut")
    install(package, DATA / "trainable")
    assert (device / "package.state/switchboard").stat().st_size == 24


@pytest.mark.parametrize("dtype", ["float;2", "floaty", "object", "", "<f4", "U5"])
def test_the_error_names_a_non_numeric_type(device, dtype):
    path = device / "package" / "manifest.json"
    content = json.loads(path.read_text())
    content["inputs"][0]["dtype"] = dtype
    path.write_text(json.dumps(content))
    with pytest.raises(MistifyError, match=r"inputs\[0\].dtype: got .*; expected a numeric") as caught:
        load(device / "package")
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_the_error_names_a_manifest_that_is_a_directory(device):
    package = damaged(device, "package/manifest.json", "a directory")
    with pytest.raises(MistifyError, match=r"manifest\.json: got Is a directory") as caught:
        load(package)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE

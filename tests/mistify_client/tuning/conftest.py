"""A coordinator with a group that tunes two packages, and devices with data."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.tuning import fleet
from mistify.peers.hints import Hints
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.versions import state_directory
from mistify_client.tuning import Examples, Peering, tune
from mistify_client.tuning.trainer import load_trainer
from tests.mistify_client.coordinators import running
from tests.mistify_client.tuning.devices import SETTINGS, examples

GOALS = {"half": "trainable", "third": "trainable_narrow"}


@dataclass
class Device:
    """A device with its own package and data."""

    package: Path
    examples: Examples
    number: int

    def tune(self, address=None, count=4, backoff=None, privacy=None, settings=SETTINGS, **options):
        peering = None
        if address is not None:
            hints = Hints(view_degrees=float(self.number))
            backoff = backoff or Backoff(attempts=2, wait=lambda seconds: None)
            peering = Peering(address, fleet.GROUP, hints, count, backoff=backoff)
        return tune(self.package, self.examples, peering, privacy, settings=settings, **options)

    @property
    def state(self) -> Path:
        return state_directory(self.package) / "tuning"

    def trainer(self):
        return load_trainer(self.package, threads=1)


@pytest.fixture
def device(data, tmp_path):
    """Return a function that makes devices: even ones have the package `half`, odd ones `third`."""

    def make(number: int, count: int = 400) -> Device:
        source = data / list(GOALS.values())[number % 2]
        package = shutil.copytree(source, tmp_path / f"device-{number}" / "package")
        return Device(package, examples(100 + number, count), number)

    return make


@pytest.fixture
def scales():
    """Return the correlation scales of the group."""
    return {"view_degrees": 90.0}


@pytest.fixture
def store(data, tmp_path, scales):
    packages = {
        goal: {
            path.name: path.read_bytes() for path in (data / name).iterdir() if path.name != "expected.npz"
        }
        for goal, name in GOALS.items()
    }
    fleet.prepare_packages(tmp_path / "store", packages, scales)
    return tmp_path / "store"


@pytest.fixture
def address(store):
    with running(store) as bound:
        yield bound

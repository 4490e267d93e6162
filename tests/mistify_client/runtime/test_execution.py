import json
from functools import partial

import pytest

from mistify.package.manifest import Manifest
from mistify_client.runtime.execution import best_execution, fastest
from mistify_client.runtime.interpreter import Execution, Network, open_network


class Machine:
    """Inferences that take what is said, by its own clock."""

    def __init__(self, seconds: dict[Execution, float]) -> None:
        self.seconds = seconds
        self.now = 0.0

    def prepare(self, way: Execution):
        def run() -> None:
            self.now += self.seconds.get(way, 1.0)

        return run


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({}, Execution(1)),
        ({Execution(2): 0.6}, Execution(2)),
        ({Execution(2): 0.95}, Execution(1)),
        ({Execution(2): 0.6, Execution(4): 0.58}, Execution(2)),
        ({Execution(2): 0.6, Execution(4): 0.3}, Execution(4)),
        ({Execution(delegate=False): 0.5}, Execution(delegate=False)),
    ],
)
def test_takes_what_is_fastest_and_more_threads_only_if_they_bring_much(seconds, best, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    machine = Machine(seconds)
    assert fastest(machine.prepare, clock=lambda: machine.now) == best


def not_to_be_opened(way: Execution) -> Network:
    raise AssertionError(f"measured {way}")


def test_is_remembered(package, tmp_path):
    manifest = Manifest.load(package)
    actual = best_execution(tmp_path, manifest, partial(open_network, package, manifest))
    assert best_execution(tmp_path, manifest, not_to_be_opened) == actual
    (key,) = json.loads((tmp_path / "execution.json").read_text())
    (tmp_path / "execution.json").write_text(json.dumps({key: {"threads": 3, "delegate": False}}))
    assert best_execution(tmp_path, manifest, not_to_be_opened) == Execution(3, delegate=False)


def test_of_another_package_is_found_anew(package, branch_package, tmp_path):
    for directory in (package, branch_package):
        manifest = Manifest.load(directory)
        best_execution(tmp_path, manifest, partial(open_network, directory, manifest))
    assert len(json.loads((tmp_path / "execution.json").read_text())) == 2


@pytest.mark.parametrize("left", ["", "[]", "{", '{"KEY": 3}', '{"KEY": {"cores": 3}}'])
def test_what_makes_no_sense_is_found_anew(package, tmp_path, left):
    manifest = Manifest.load(package)
    open_with = partial(open_network, package, manifest)
    best_execution(tmp_path, manifest, open_with)
    (key,) = json.loads((tmp_path / "execution.json").read_text())
    (tmp_path / "execution.json").write_text(left.replace("KEY", key))
    actual = best_execution(tmp_path, manifest, open_with)
    assert best_execution(tmp_path, manifest, not_to_be_opened) == actual

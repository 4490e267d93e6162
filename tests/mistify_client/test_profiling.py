"""Packages are measured on this device."""

from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify.package.manifest import Manifest
from mistify_client.profiling import measure_package


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["package", "branch_package"])
def test_packages_are_measured_with_the_threads_of_their_goal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str, threads: int
) -> None:
    used = set()

    def interpreter(num_threads: int, **options: Any) -> Interpreter:
        used.add(num_threads)
        return Interpreter(num_threads=num_threads, **options)

    monkeypatch.setattr("mistify.litert.Interpreter", interpreter)
    monkeypatch.setattr("mistify_client.profiling._SECONDS", 0.01)
    package: Path = request.getfixturevalue(kind)
    manifest = Manifest.load(package)
    latency = manifest.latency.model_copy(update={"threads": threads})
    manifest.model_copy(update={"latency": latency}).save(package)
    assert 0 < measure_package(package) < 1000
    assert used == {threads}

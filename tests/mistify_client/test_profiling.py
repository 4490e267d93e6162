"""Measuring packages on this device."""

from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK, Manifest
from mistify_client import profiling
from mistify_client.profiling import measure_package, package_latency_ms
from tests.support.ending import end


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
    assert 0 < package_latency_ms(package) < 1000
    assert used == {threads}


def test_a_package_that_crashes_litert_does_not_crash_the_caller(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < measure_package(package) < 1000
    monkeypatch.setattr(profiling, "package_latency_ms", end)
    with pytest.raises(MistifyError, match=r"cannot run .*tflite on this device: .*SIGABRT") as refused:
        measure_package(package)
    assert refused.value.code is ErrorCode.CORRUPT_PACKAGE


def test_a_damaged_network_is_not_measured(package: Path) -> None:
    with (package / NETWORK).open("ab") as network:
        network.write(b"\0")
    with pytest.raises(MistifyError, match=NETWORK) as refused:
        measure_package(package)
    assert refused.value.code is ErrorCode.CORRUPT_PACKAGE


def test_a_directory_without_a_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MistifyError) as refused:
        measure_package(tmp_path)
    with pytest.raises(MistifyError) as expected:
        Manifest.load(tmp_path)
    assert str(refused.value) == str(expected.value)

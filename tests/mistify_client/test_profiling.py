"""Packages are measured on this device."""

from pathlib import Path

from mistify_client.profiling import measure_package


def test_packages_are_measured_with_and_without_branches(package: Path, branch_package: Path) -> None:
    assert 0 < measure_package(package, [1, 2]) < 1000
    assert 0 < measure_package(branch_package, [1]) < 1000

"""`mistify export`."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.support.adaptable import make_package


def test_a_package_is_written_and_compared(tmp_path, mistify):
    package = make_package(tmp_path / "package")
    shown = mistify("export", package, "--onnx", tmp_path / "net.onnx")
    assert shown.exit_code == 0, shown.stderr
    assert "largest difference from the package: " in shown.stdout
    assert "net.onnx" in shown.stdout
    assert (tmp_path / "net.onnx").stat().st_size > 1000
    again = mistify("export", package, "--onnx", tmp_path / "net.onnx")
    assert again.exit_code == 2
    assert "which exists; expected a new file" in again.stderr


def test_the_exported_branch_is_named(tmp_path, mistify):
    package = make_package(tmp_path / "package", "adaptable_branches")
    shown = mistify("export", package, "--onnx", tmp_path / "net.onnx")
    assert "branch 1, the goal's own network" in shown.stdout

"""A tuned version has all files of its package, with other weights."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import mistify_client
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.records import describe_file
from mistify.package.verification import verify
from mistify_client.origin import Origin
from mistify_client.runtime.versions import copy_package, state_directory
from mistify_client.tuning import installing
from mistify_client.tuning.installing import install_tuned
from mistify_client.tuning.trainer import load_trainer
from mistify_client.tuning.training_loop import Score
from tests.support import elastic_stores
from tests.support.paths import DATA


def test_a_tuned_version_keeps_other_files_and_manifest_fields(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(DATA / "trainable", package)
    (package / "expected.npz").unlink()
    (package / "vocab.txt").write_text("word\n")
    shipped = Manifest.load(package)
    labels = {"scores": tuple("abcdefghij"[: shipped.outputs[0].shape[-1]])}
    files = shipped.files | {"vocab.txt": describe_file(package / "vocab.txt")}
    shipped.model_copy(update={"files": files, "labels": labels}).save(package)
    weights = {name: 0 * array for name, array in load_trainer(package).weights().items()}
    version = install_tuned(package, package, weights, Score(0.5, 0.25), 8)
    assert (version / "vocab.txt").read_text() == "word\n"
    assert verify(version).tuned_from == shipped.files["serve.tflite"].sha256
    model = mistify_client.load(package)
    assert model.labels == labels["scores"]
    zeros = np.zeros((1, *model.inputs[0].shape[1:]), np.float32)
    assert np.ptp(model(zeros)) == 0


def test_a_new_version_is_written_next_to_the_package_for_the_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other places may be small disks or in memory. Files of a killed process are removed."""
    package = Path(shutil.copytree(DATA / "trainable", tmp_path / "package"))
    tuning = state_directory(package) / "tuning"
    (tuning / "installing").mkdir(parents=True)
    (tuning / "installing" / "serve.tflite.part").write_text("left over")
    copied: list[Path] = []

    def copying(source: Path, directory: Path) -> None:
        assert not list(directory.iterdir())
        assert directory.stat().st_mode & 0o077 == 0
        copied.append(directory)
        copy_package(source, directory)

    monkeypatch.setattr(installing, "copy_package", copying)
    weights = load_trainer(package).weights()
    install_tuned(package, package, weights, Score(0.5, 0.25), 8)
    assert copied == [tuning / "installing"]
    assert not list(tuning.iterdir())


def test_a_package_without_its_blocks_can_be_tuned(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(DATA / "trainable", package)
    store = elastic_stores.write(package)
    files = {path.name: describe_file(path) for path in package.iterdir() if path.name != MANIFEST}
    Manifest.load(package).model_copy(update={"files": files}).save(package)
    for variant in store.variants:
        (package / variant.file).unlink()
    origin = Origin(server="localhost:1", job="job-1", goal="half")
    origin.save(package)
    weights = {name: 0 * array for name, array in load_trainer(package).weights().items()}
    version = install_tuned(package, package, weights, Score(0.5, 0.25), 8)
    assert verify(version).tuned_from
    assert Origin.load(version) == origin

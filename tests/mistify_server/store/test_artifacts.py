import hashlib
import os
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify_server.store.artifacts import Artifacts, artifact_of, digest_of


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return Artifacts(tmp_path / "artifacts")


def test_content_is_stored_under_its_digest(artifacts: Artifacts) -> None:
    name = artifacts.put(b"weights", ".keras")
    assert name == hashlib.sha256(b"weights").hexdigest() + ".keras"
    assert artifacts.path(name).read_bytes() == b"weights"
    assert artifacts.size(name) == 7
    assert digest_of(name) == hashlib.sha256(b"weights").hexdigest()
    assert artifact_of(PackageFile("model.keras", 7, digest_of(name))) == name


def test_a_file_keeps_its_suffix_and_is_copied(artifacts: Artifacts, tmp_path: Path) -> None:
    original = tmp_path / "Model.H5"
    original.write_bytes(b"weights")
    name = artifacts.put(original)
    original.write_bytes(b"changed")
    assert name.endswith(".h5")
    assert artifacts.path(name).read_bytes() == b"weights"


def test_equal_content_is_kept_once(artifacts: Artifacts, tmp_path: Path) -> None:
    first, second = artifacts.put(b"same", ".bin"), artifacts.put(b"same", ".bin")
    assert first == second
    assert [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == [artifacts.path(first)]


@pytest.mark.parametrize("damage", ["bits", "cut", "same size and time"])
def test_a_damaged_artifact_is_detected_and_repaired_by_adding_it_again(
    artifacts: Artifacts, damage: str
) -> None:
    name = artifacts.put(b"weights", ".keras")
    path = artifacts.intact(name)
    status = path.stat()
    path.write_bytes(b"wei" if damage == "cut" else b"weiXhts")
    if damage == "same size and time":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(MistifyError, match=f"{name} is damaged") as raised:
        artifacts.intact(name)
    assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
    assert artifacts.put(b"weights", ".keras") == name
    assert artifacts.intact(name).read_bytes() == b"weights"


def test_a_missing_artifact_is_not_intact(artifacts: Artifacts, tmp_path: Path) -> None:
    with pytest.raises(MistifyError, match="is missing") as raised:
        artifacts.intact("0" * 64)
    assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
    assert str(tmp_path) not in raised.value.message


def test_files_of_a_killed_writer_are_removed(artifacts: Artifacts, tmp_path: Path) -> None:
    name = artifacts.put(b"kept")
    (tmp_path / "artifacts" / "incoming" / "half").write_bytes(b"ha")
    artifacts.clear_incoming()
    assert artifacts.path(name).read_bytes() == b"kept"
    assert not (tmp_path / "artifacts" / "incoming").exists()
    artifacts.put(b"more")


def test_other_files_are_not_artifacts(artifacts: Artifacts) -> None:
    name = artifacts.put(b"kept", ".pb")
    for foreign in f".{name}.Xy12ab", "notes.txt":
        artifacts.path(name).with_name(foreign).write_bytes(b"of a copy that was broken off")
    assert artifacts.names() == [name]


def test_removing_and_adding_exclude_each_other(artifacts: Artifacts) -> None:
    with artifacts.adding(), artifacts.adding():
        with pytest.raises(MistifyError, match="try again") as raised, artifacts.removing():
            pass
        assert raised.value.code is ErrorCode.UNAVAILABLE
    with artifacts.removing(), pytest.raises(MistifyError, match="try again"), artifacts.adding():
        pass
    with artifacts.adding():
        pass


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 64 + "/x", "A" * 64, "a" * 64 + "\n", ""])
def test_only_valid_artifact_names_are_looked_up(artifacts: Artifacts, name: str) -> None:
    with pytest.raises(MistifyError, match="not the name of an artifact") as raised:
        artifacts.path(name)
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_a_missing_artifact_is_an_error(artifacts: Artifacts) -> None:
    with pytest.raises(MistifyError) as raised:
        artifacts.path("0" * 64)
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_a_suffix_cannot_contain_a_path(artifacts: Artifacts) -> None:
    with pytest.raises(ValueError, match="suffix"):
        artifacts.put(b"", "/../x")


def test_an_unwritable_disk_is_explained(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file where the directory should be")
    with pytest.raises(MistifyError, match="cannot be written") as raised:
        Artifacts(tmp_path / "artifacts").put(b"x")
    assert raised.value.code is ErrorCode.UNAVAILABLE


def test_a_failed_write_leaves_no_files(
    artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MistifyError, match="No space left"):
        artifacts.put(b"x")
    assert list((tmp_path / "artifacts").rglob("*.*")) == []
    assert list((tmp_path / "artifacts" / "incoming").iterdir()) == []

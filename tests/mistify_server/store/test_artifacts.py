import hashlib
import os
import time
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify_server.store.artifacts import Artifacts, artifact_of, digest_of
from tests.support.buckets import in_bucket


@pytest.fixture(params=["directory", "bucket"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    if request.param == "directory":
        return Artifacts(tmp_path / "artifacts")
    server = request.getfixturevalue("bucket_server")
    return in_bucket(server.new_bucket(), tmp_path / "artifacts")


@pytest.fixture
def local(tmp_path: Path) -> Artifacts:
    """Return artifacts in a directory, whose files tests change."""
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
    local: Artifacts, damage: str
) -> None:
    name = local.put(b"weights", ".keras")
    path = local.intact(name)
    status = path.stat()
    path.write_bytes(b"wei" if damage == "cut" else b"weiXhts")
    if damage == "same size and time":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(MistifyError, match=f"{name} is damaged") as raised:
        local.intact(name)
    assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
    assert local.put(b"weights", ".keras") == name
    assert local.intact(name).read_bytes() == b"weights"


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


def test_other_files_are_not_artifacts(local: Artifacts) -> None:
    name = local.put(b"kept", ".pb")
    for foreign in f".{name}.Xy12ab", "notes.txt":
        local.path(name).with_name(foreign).write_bytes(b"of a copy that was broken off")
    assert local.names() == [name]


def test_artifacts_are_listed_and_read(artifacts: Artifacts) -> None:
    large = os.urandom(3_000_000)
    names = [artifacts.put(b"small", ".json"), artifacts.put(large), artifacts.put(b"")]
    assert sorted(artifacts.names()) == sorted(names)
    assert [b"".join(artifacts.content(name)) for name in names] == [b"small", large, b""]
    assert [artifacts.size(name) for name in names] == [5, len(large), 0]


def test_a_removed_artifact_is_gone_until_it_is_put_again(artifacts: Artifacts) -> None:
    name, other = artifacts.put(b"weights", ".keras"), artifacts.put(b"others")
    assert artifacts.remove_all([name, "0" * 64]) == len(b"weights")
    assert artifacts.names() == [other]
    with pytest.raises(MistifyError, match="is missing"):
        artifacts.intact(name)
    for read in (artifacts.path, artifacts.size, lambda name: list(artifacts.content(name))):
        with pytest.raises(MistifyError, match=f"{name} is not in the server's store") as raised:
            read(name)
        assert raised.value.code is ErrorCode.NOT_FOUND
    assert artifacts.put(b"weights", ".keras") == name
    assert artifacts.intact(name).read_bytes() == b"weights"


def test_new_artifacts_are_not_removed(artifacts: Artifacts) -> None:
    name = artifacts.put(b"weights", ".keras")
    assert artifacts.remove(name, time.time() - 60) == 0
    assert artifacts.names() == [name]
    assert artifacts.remove(name, time.time() + 3600) == len(b"weights")
    assert artifacts.names() == []


def test_content_is_restored_under_its_name_only(local: Artifacts) -> None:
    name = hashlib.sha256(b"weights").hexdigest() + ".keras"
    with pytest.raises(MistifyError, match=f"{name} is damaged") as raised:
        local.restore(name, [b"wei", b"ghs"])
    assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
    assert local.names() == []
    assert local.restore(name, [b"wei", b"ghts"]) == local.intact(name)


def test_artifacts_at_hand_can_be_read_by_their_paths(artifacts: Artifacts, tmp_path: Path) -> None:
    path = artifacts.path(artifacts.put(b"weights", ".keras"))
    with artifacts.at_hand([str(path), str(tmp_path / "data.npz"), "builtin:digits-train"]):
        assert path.read_bytes() == b"weights"


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

"""Uploads on machines that do not share the server's disk."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.uploads import UploadName, listing_text
from mistify_server.store.objects.address import BucketAddress
from mistify_server.store.objects.artifacts import BucketArtifacts
from mistify_server.store.objects.bucket import Bucket, StoredObject
from mistify_server.store.objects.uploads import SharedUploads
from mistify_server.store.uploads import Uploads
from tests.support.buckets import BucketServer, in_bucket
from tests.support.sent import digest_of, send

PHOTOS = {"cats/1.png": b"cat", "cats/2.png": b"other cat", "dogs/1.png": b"dog"}
NEVER = float("inf")


@pytest.fixture
def artifacts(address: str, tmp_path: Path) -> BucketArtifacts:
    return in_bucket(address, tmp_path / "store" / "artifacts")


@pytest.fixture
def uploads(artifacts: BucketArtifacts, tmp_path: Path) -> Uploads:
    """Return the uploads of the server."""
    return Uploads(tmp_path / "store" / "uploads", 1e9, set, share=artifacts.share)


def send_file(uploads: Uploads, content: bytes, name: str = "data.csv") -> UploadName:
    return UploadName(send(uploads, content).sha256, name)


def send_directory(uploads: Uploads, files: Mapping[str, bytes]) -> UploadName:
    for content in files.values():
        send(uploads, content)
    listing = listing_text({path: digest_of(content) for path, content in files.items()})
    return UploadName(send(uploads, listing).sha256, "photos", directory=True)


def on_another_machine(tmp_path: Path) -> None:
    """Leave nothing of the store, whose path is the same on every machine."""
    shutil.rmtree(tmp_path / "store")


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_an_upload_that_arrives_during_a_removal_stays_in_the_bucket(
    uploads: Uploads,
    artifacts: BucketArtifacts,
    address: str,
    bucket_server: BucketServer,
    *,
    tmp_path: Path,
    directory: bool,
) -> None:
    def sent() -> UploadName:
        return send_directory(uploads, PHOTOS) if directory else send_file(uploads, b"a,b")

    class Slow(Bucket):
        """Lets an upload arrive, and be used by a job, after its old objects have been listed."""

        def all(self, start: str = "") -> dict[str, StoredObject]:
            objects = super().all(start)
            uploads.find(sent())
            return objects

    uploads.find(sent())
    stored = bucket_server.objects(address)
    shutil.rmtree(tmp_path / "store")  # the server has removed it long ago
    SharedUploads(tmp_path / "store" / "uploads", Slow(BucketAddress.of(address))).remove_unused((), NEVER)
    assert bucket_server.objects(address) == stored
    shutil.rmtree(tmp_path / "store")
    artifacts.remove_shared((), NEVER)
    assert bucket_server.objects(address) == {}


def test_a_machine_gets_a_file_under_its_name(
    uploads: Uploads, artifacts: BucketArtifacts, tmp_path: Path
) -> None:
    path = uploads.find(send_file(uploads, b"a,b"))
    on_another_machine(tmp_path)
    for _ in range(2):
        with artifacts.at_hand([str(path)]):
            assert path.read_bytes() == b"a,b"
    assert [each.name for each in path.parent.parent.iterdir()] == [path.parent.name]


def test_a_machine_gets_an_upload_of_a_tenant_in_its_directory(
    artifacts: BucketArtifacts, tmp_path: Path
) -> None:
    own = Uploads(tmp_path / "store" / "uploads" / "tenants" / "red", 1e9, set, share=artifacts.share)
    path = own.find(send_file(own, b"a,b"))
    on_another_machine(tmp_path)
    with artifacts.at_hand([str(path)]):
        assert path.read_bytes() == b"a,b"
    assert path.is_relative_to(tmp_path / "store" / "uploads" / "tenants" / "red")


def test_a_machine_gets_a_directory_and_files_in_it(
    uploads: Uploads, artifacts: BucketArtifacts, tmp_path: Path
) -> None:
    directory = uploads.find(send_directory(uploads, PHOTOS))
    on_another_machine(tmp_path)
    with artifacts.at_hand([str(directory / "cats" / "1.png")]):
        fetched = {
            str(path.relative_to(directory)): path.read_bytes()
            for path in directory.rglob("*")
            if path.is_file()
        }
    assert fetched == PHOTOS


def test_an_upload_is_stored_once(
    uploads: Uploads, address: str, bucket_server: BucketServer, artifacts: BucketArtifacts
) -> None:
    upload = send_directory(uploads, PHOTOS)
    uploads.find(upload)
    shared = bucket_server.objects(address)
    assert sorted(shared.values())[:3] == sorted(PHOTOS.values())
    assert len(shared) == 4
    key = next(key for key, content in shared.items() if content == b"cat")
    bucket_server.replace(address, key, b"not overwritten")
    uploads.find(upload)
    assert bucket_server.objects(address)[key] == b"not overwritten"
    assert artifacts.names() == []


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_a_damaged_or_missing_upload_is_never_used(
    uploads: Uploads,
    artifacts: BucketArtifacts,
    address: str,
    bucket_server: BucketServer,
    *,
    tmp_path: Path,
    directory: bool,
) -> None:
    upload = send_directory(uploads, PHOTOS) if directory else send_file(uploads, b"cat", "1.png")
    path = uploads.find(upload)
    on_another_machine(tmp_path)
    key = f"uploads/files/{digest_of(b'cat').sha256}"
    for state in ("damaged", "missing"):
        if state == "damaged":
            bucket_server.replace(address, key, b"dog")
        else:
            bucket_server.remove(address, key)
        with (
            pytest.raises(MistifyError, match=f"{state} in the bucket") as raised,
            artifacts.at_hand([str(path)]),
        ):
            pass
        assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
        assert [each for each in (tmp_path / "store").rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
@pytest.mark.parametrize("state", ["damaged", "missing"])
def test_the_next_job_stores_an_unusable_upload_again(
    uploads: Uploads,
    artifacts: BucketArtifacts,
    address: str,
    bucket_server: BucketServer,
    *,
    tmp_path: Path,
    directory: bool,
    state: str,
) -> None:
    upload = send_directory(uploads, PHOTOS) if directory else send_file(uploads, b"cat", "1.png")
    path = uploads.find(upload)
    shared = bucket_server.objects(address)
    key = f"uploads/files/{digest_of(b'cat').sha256}"
    if state == "damaged":
        bucket_server.replace(address, key, b"dog")
    else:
        bucket_server.remove(address, key)
    server, machine = tmp_path / "server", tmp_path / "store"
    machine.rename(server)
    with pytest.raises(MistifyError, match=f"{state} in the bucket"), artifacts.at_hand([str(path)]):
        pass
    shutil.rmtree(machine)
    server.rename(machine)
    uploads.find(upload)
    assert bucket_server.objects(address) == shared
    on_another_machine(tmp_path)
    with artifacts.at_hand([str(path)]):
        assert path.exists()


def test_an_upload_is_unavailable_while_the_bucket_is(
    uploads: Uploads, artifacts: BucketArtifacts, bucket_server: BucketServer, tmp_path: Path
) -> None:
    upload = send_file(uploads, b"a,b")
    with bucket_server.away(), pytest.raises(MistifyError) as raised:
        uploads.find(upload)
    assert raised.value.code is ErrorCode.UNAVAILABLE
    path = uploads.find(upload)
    on_another_machine(tmp_path)
    with bucket_server.away(), pytest.raises(MistifyError) as raised, artifacts.at_hand([str(path)]):
        pass
    assert raised.value.code is ErrorCode.UNAVAILABLE
    with artifacts.at_hand([str(path)]):
        assert path.exists()


def test_objects_of_removed_uploads_are_removed(
    uploads: Uploads, artifacts: BucketArtifacts, address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    upload = send_directory(uploads, PHOTOS)
    uploads.find(upload)
    uploads.find(send_file(uploads, b"a,b"))
    shared = bucket_server.objects(address)
    artifacts.remove_shared(set(), NEVER)
    assert bucket_server.objects(address) == shared  # the server still has the files
    on_another_machine(tmp_path)
    artifacts.remove_shared(set(), 0.0)
    assert bucket_server.objects(address) == shared
    artifacts.remove_shared({upload.sha256}, NEVER)  # a job needs the directory
    kept = bucket_server.objects(address)
    assert shared.keys() - kept.keys() == {f"uploads/files/{digest_of(b'a,b').sha256}"}
    artifacts.remove_shared(set(), NEVER)
    assert bucket_server.objects(address) == {}


def test_all_files_stay_while_a_directory_in_use_is_damaged(
    uploads: Uploads,
    artifacts: BucketArtifacts,
    address: str,
    bucket_server: BucketServer,
    *,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    used, unused = send_directory(uploads, PHOTOS), send_directory(uploads, {"1.png": b"bird"})
    for upload in (used, unused):
        uploads.find(upload)
    shared = bucket_server.objects(address)
    bucket_server.replace(address, f"uploads/listings/{used.sha256}", b"{}")
    on_another_machine(tmp_path)
    artifacts.remove_shared({used.sha256}, NEVER)  # a job needs the directory
    kept = bucket_server.objects(address)
    assert shared.keys() - kept.keys() == {f"uploads/listings/{unused.sha256}"}
    assert f"stay in the bucket: the upload {used.sha256} is damaged" in caplog.text
    artifacts.remove_shared(set(), NEVER)
    assert bucket_server.objects(address) == {}


def test_fetched_uploads_are_removed_when_unused(
    uploads: Uploads, artifacts: BucketArtifacts, tmp_path: Path
) -> None:
    old, used, new = (uploads.find(send_file(uploads, content)) for content in (b"1", b"2", b"3"))
    on_another_machine(tmp_path)
    with artifacts.at_hand([str(old), str(used)]):
        os.utime(old.parent, (1.0, 1.0))
    with artifacts.at_hand([str(new)]):
        assert [path.exists() for path in (old, used, new)] == [False, True, True]


def test_other_paths_are_left_alone(artifacts: BucketArtifacts, tmp_path: Path) -> None:
    with artifacts.at_hand(["/srv/data/train.npz", str(tmp_path / "store" / "weights"), "builtin:digits"]):
        pass
    assert not (tmp_path / "store").exists()

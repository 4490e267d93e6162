"""Artifacts in a bucket, which several machines share, and their copies."""

import asyncio
import hashlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.objects.address import BucketAddress
from mistify_server.store.objects.bucket import Bucket
from tests.support.buckets import BucketServer, in_bucket

WEIGHTS = hashlib.sha256(b"weights").hexdigest() + ".keras"
KEY = f"{WEIGHTS[:2]}/{WEIGHTS}"


def failure(call: Callable[[], object], code: ErrorCode = ErrorCode.UNAVAILABLE) -> str:
    """Return the message of a call that fails because of the bucket."""
    with pytest.raises(MistifyError) as raised:
        call()
    assert raised.value.code is code
    return raised.value.message


def refusal(call: Callable[[], object]) -> str:
    """Return the message of a call that the bucket refuses."""
    return failure(call, ErrorCode.STORE_REFUSED)


def test_machines_see_the_artifacts_of_others(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    one, other = in_bucket(address, tmp_path / "one"), in_bucket(address, tmp_path / "other")
    name = one.put(b"weights", ".keras")
    assert bucket_server.objects(address) == {KEY: b"weights"}
    assert (other.names(), other.size(name)) == ([name], 7)
    assert other.path(name) == tmp_path / "other" / KEY
    assert other.intact(name).read_bytes() == b"weights"
    assert one.remove(name) == 7
    assert (other.names(), bucket_server.objects(address)) == ([], {})


def test_other_objects_are_not_artifacts(address: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    artifacts = in_bucket(address, tmp_path)
    name = artifacts.put(b"weights", ".keras")
    for key in ("store", f"00/{WEIGHTS}", f"copy/{KEY}", f"{WEIGHTS[:2]}/notes.txt", WEIGHTS):
        bucket_server.replace(address, key, b"other")
    assert artifacts.names() == [name]
    assert in_bucket(address.removesuffix("/store"), tmp_path).names() == []


@pytest.mark.parametrize("damage", ["missing", "bits", "cut"])
def test_a_damaged_copy_is_fetched_again(address: str, tmp_path: Path, damage: str) -> None:
    artifacts = in_bucket(address, tmp_path)
    path = artifacts.intact(artifacts.put(b"weights", ".keras"))
    for read in (artifacts.path, artifacts.intact):
        path.unlink()
        if damage != "missing":
            path.write_bytes(b"wei" if damage == "cut" else b"weiXhts")
        assert read(WEIGHTS).read_bytes() == b"weights"


@pytest.mark.parametrize("content", [b"wei", b"weiXhts", b""])
def test_a_damaged_object_is_never_used_and_replaced_by_putting_it_again(
    address: str, bucket_server: BucketServer, tmp_path: Path, content: bytes
) -> None:
    one, other = in_bucket(address, tmp_path / "one"), in_bucket(address, tmp_path / "other")
    name = one.put(b"weights", ".keras")
    bucket_server.replace(address, KEY, content)
    for read in (other.path, other.intact):
        with pytest.raises(MistifyError, match=f"{name} is damaged") as raised:
            read(name)
        assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
    assert [path for path in (tmp_path / "other").rglob("*") if path.is_file()] == []
    assert one.intact(name).read_bytes() == b"weights"  # its copy is in order
    assert one.put(b"weights", ".keras") == name
    assert other.intact(name).read_bytes() == b"weights"


def test_a_large_object_is_stored_in_parts(address: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    content = os.urandom(20_000_000)
    name = in_bucket(address, tmp_path / "one").put(content)
    assert bucket_server.objects(address)[f"{name[:2]}/{name}"] == content
    assert in_bucket(address, tmp_path / "other").intact(name).read_bytes() == content


def test_a_bucket_that_is_away_is_reported_and_used_again_when_it_is_back(
    address: str, bucket_server: BucketServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifacts = in_bucket(address, tmp_path / "one")
    kept = artifacts.put(b"kept")
    name = artifacts.put(b"weights", ".keras")
    artifacts.place(name).unlink()
    with bucket_server.away():
        for call in (
            lambda: artifacts.put(b"more"),
            lambda: artifacts.intact(name),
            lambda: artifacts.size(name),
            lambda: artifacts.remove(kept),
            artifacts.names,
        ):
            message = failure(call)
            assert "the bucket with the server's artifacts " in message
            assert "check the network" in message
            assert address not in message  # callers of a server see messages
        assert address in caplog.text
    assert sorted(artifacts.names()) == sorted([kept, name])
    assert artifacts.intact(name).read_bytes() == b"weights"
    more = artifacts.put(b"more")
    assert in_bucket(address, tmp_path / "other").intact(more).read_bytes() == b"more"


async def test_a_patient_machine_waits_until_it_can_upload(
    address: str,
    bucket_server: BucketServer,
    tmp_path: Path,
    wait_until: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    artifacts = in_bucket(address, tmp_path, patience=600)
    with bucket_server.away():
        putting = asyncio.create_task(asyncio.to_thread(artifacts.put, b"weights", ".keras"))
        await wait_until(lambda: "cannot be used: " in caplog.text)
        assert not putting.done()
    assert await putting == WEIGHTS
    assert artifacts.names() == [WEIGHTS]


def test_refused_credentials_are_an_error_at_once_which_names_bucket_and_key(
    address: str, bucket_server: BucketServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifacts = in_bucket(address, tmp_path, patience=1e9)
    name = artifacts.put(b"weights", ".keras")
    artifacts.place(name).unlink()
    with bucket_server.refusing():
        for call in (
            lambda: artifacts.put(b"more"),
            lambda: artifacts.intact(name),
            lambda: artifacts.size(name),
            artifacts.names,
        ):
            caplog.clear()
            message = refusal(call)
            assert message.startswith("the bucket with the server's artifacts has refused ")
            assert address not in message  # callers of a server see messages
            assert f"{address} cannot be used with the access key tester: " in caplog.text
    assert artifacts.intact(name).read_bytes() == b"weights"


def test_corrected_credentials_are_used_at_once(
    address: str, bucket_server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = in_bucket(address, tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    refusal(artifacts.names)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, bucket_server.variables[name])
    assert artifacts.names() == []


def test_no_task_begins_until_what_was_refused_is_stored(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    artifacts = in_bucket(address, tmp_path, patience=1e9)
    with bucket_server.refusing():
        for content in (b"weights", b"others"):
            refusal(lambda content=content: artifacts.put(content, ".keras"))
        for _ in range(2):
            refusal(artifacts.at_hand([]).__enter__)
    with artifacts.at_hand([]):
        stored = bucket_server.objects(address)
        assert stored.pop(KEY) == b"weights"
        assert list(stored.values()) == [b"others"]
    for key in (KEY, *stored):
        bucket_server.remove(address, key)
    with artifacts.at_hand([]):
        assert bucket_server.objects(address) == {}


def test_a_copy_serves_while_the_bucket_is_away(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    artifacts = in_bucket(address, tmp_path)
    name = artifacts.put(b"weights", ".keras")
    with bucket_server.away():
        assert artifacts.intact(name).read_bytes() == b"weights"


def test_an_upload_that_breaks_off_leaves_no_object(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    artifacts = in_bucket(address, tmp_path)
    artifacts.names()
    for size in (2_000_000, 20_000_000):
        bucket_server.relay.cut_after(1_000_000)
        failure(lambda size=size: artifacts.put(bytes(size)))
    assert (artifacts.names(), bucket_server.objects(address)) == ([], {})
    assert bucket_server.relay.cuts == 2


def test_a_download_that_breaks_off_leaves_no_copy(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    name = in_bucket(address, tmp_path / "one").put(bytes(30_000_000))  # more than sockets keep
    other = in_bucket(address, tmp_path / "other")
    content = other.content(name)
    next(content)
    with bucket_server.away():
        failure(lambda: other.restore(name, content))
    assert not other.place(name).exists()
    assert list(other.incoming().iterdir()) == []


def test_a_bucket_that_does_not_answer_is_unavailable(
    address: str, bucket_server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistify_server.store.objects.bucket._ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:{}".format(*silent.getsockname()[1:]))
        message = failure(in_bucket(address, tmp_path).names)
    assert "does not answer in time; check the network" in message


def test_a_bucket_that_does_not_exist_is_reported(bucket_server: BucketServer, tmp_path: Path) -> None:
    artifacts = in_bucket("s3://no-such-bucket/x", tmp_path)
    for call in (
        artifacts.names,
        lambda: artifacts.put(b"weights", ".keras"),
        lambda: artifacts.size(WEIGHTS),
        lambda: list(artifacts.content(WEIGHTS)),
    ):
        assert "there is no such bucket; create it, or correct --artifacts" in refusal(call)


def test_missing_credentials_are_reported(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    message = refusal(in_bucket(address, tmp_path).names)
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" in message


def test_without_its_client_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setitem(sys.modules, "boto3.exceptions", None)
    with pytest.raises(MistifyError, match=r"pip install 'mistify-porting\[s3\]'") as raised:
        in_bucket("s3://models/mistify", tmp_path).names()
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_an_endpoint_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio")
    with pytest.raises(MistifyError, match="correct AWS_ENDPOINT_URL") as raised:
        Bucket(BucketAddress.of(address)).all()
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_an_object_that_is_removed_at_once_is_stored_again(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    class Removed(Bucket):
        """Removes what is stored, as another program does, the next `times` times."""

        times = 1

        def upload(self, key: str, path: Path) -> None:
            super().upload(key, path)
            if self.times:
                self.times -= 1
                bucket_server.remove(address, key)

    artifacts = in_bucket(address, tmp_path)
    artifacts._bucket = removed = Removed(BucketAddress.of(address))
    assert artifacts.put(b"weights", ".keras") == WEIGHTS
    assert artifacts.names() == [WEIGHTS]
    removed.times = 9
    assert "does not keep" in failure(lambda: artifacts.put(b"weights", ".keras"))


def test_copies_in_use_stay_and_others_make_room(address: str, tmp_path: Path) -> None:
    artifacts = in_bucket(address, tmp_path, copies_bytes=1000)
    first, second = (artifacts.put(bytes([number]) * 800) for number in range(2))
    with artifacts.at_hand([str(artifacts.place(first)), str(artifacts.place(second))]):
        for age, name in enumerate((first, second), start=1):
            os.utime(artifacts.place(name), (age, age))
        artifacts.put(b"x" * 100)
        assert [artifacts.place(name).exists() for name in (first, second)] == [True, True]
    artifacts.put(b"y" * 100)
    assert [artifacts.place(name).exists() for name in (first, second)] == [False, True]
    assert artifacts.intact(first).read_bytes() == bytes(800)


def test_a_task_gets_the_files_that_its_machine_does_not_have(address: str, tmp_path: Path) -> None:
    artifacts = in_bucket(address, tmp_path)
    path = artifacts.path(artifacts.put(b"weights", ".keras"))
    path.unlink()
    with artifacts.at_hand([str(path)]):
        assert path.read_bytes() == b"weights"
    artifacts.remove(WEIGHTS)
    with pytest.raises(MistifyError, match="is missing"), artifacts.at_hand([str(path)]):
        pass

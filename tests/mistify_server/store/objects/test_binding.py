"""The link between a store and the bucket with its artifacts."""

from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.artifacts import Artifacts, artifacts_of
from mistify_server.store.lock import locked_store
from mistify_server.store.objects.artifacts import BucketArtifacts
from mistify_server.store.objects.binding import (
    BINDING,
    OWNER,
    Binding,
    bind_artifacts,
    binding_of,
    opened_artifacts,
    record_binding,
)
from tests.support.buckets import BucketServer, with_bucket


def bind(directory: Path, address: str | None, copies_bytes: int = 10) -> None:
    with locked_store(directory):
        bind_artifacts(directory, address, copies_bytes)


def test_without_an_address_artifacts_are_in_the_store(tmp_path: Path) -> None:
    bind(tmp_path, None)
    assert binding_of(tmp_path) is None
    assert type(opened_artifacts(tmp_path)) is Artifacts


def test_a_store_remembers_its_bucket(address: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    name = with_bucket(address, tmp_path).put(b"weights", ".keras")
    bind(tmp_path, None, copies_bytes=20)
    binding = binding_of(tmp_path)
    assert binding is not None
    assert (binding.address, binding.copies_bytes) == (address, 20)
    assert (tmp_path / BINDING).stat().st_mode & 0o077 == 0
    artifacts = opened_artifacts(tmp_path)
    assert isinstance(artifacts, BucketArtifacts)
    assert artifacts.names() == [name]
    objects = bucket_server.objects(address)
    assert objects.keys() == {OWNER, f"{name[:2]}/{name}"}
    assert objects[OWNER].decode() == binding.owner


def test_artifacts_of_a_store_are_uploaded_first(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    own = artifacts_of(tmp_path)
    kept, damaged = own.put(b"weights", ".keras"), own.put(b"damaged")
    own.place(damaged).write_bytes(b"other")
    assert with_bucket(address, tmp_path).names() == [kept]
    with bucket_server.away(), pytest.raises(MistifyError) as raised:
        bind(tmp_path, None)
    assert raised.value.code is ErrorCode.UNAVAILABLE
    assert address in raised.value.message  # the operator starts the server


def test_a_bucket_serves_one_store(address: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with_bucket(address, one)
    other_address = f"{address}-2"
    with_bucket(other_address, other)
    for store, place in ((tmp_path / "new", address), (other, address), (one, other_address)):
        with pytest.raises(MistifyError, match=f"{place} has the artifacts of another store") as raised:
            bind(store, place)
        assert raised.value.code is ErrorCode.CONFLICT
    assert binding_of(tmp_path / "new") is None


def test_a_bucket_may_move_with_all_its_objects(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    name = with_bucket(address, tmp_path).put(b"weights")
    moved = bucket_server.new_bucket()
    with pytest.raises(MistifyError, match=r"copy all objects from there first \(aws s3 sync\)") as raised:
        bind(tmp_path, moved)
    assert raised.value.code is ErrorCode.CONFLICT
    assert binding_of(tmp_path).address == address  # type: ignore[union-attr]
    for key, content in bucket_server.objects(address).items():
        bucket_server.replace(moved, key, content)
    bind(tmp_path, moved)
    bucket_server.remove(address, f"{name[:2]}/{name}")
    assert opened_artifacts(tmp_path).names() == [name]


def test_a_link_that_was_interrupted_is_completed(
    address: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    with_bucket(address, tmp_path)
    bucket_server.remove(address, OWNER)  # as if the server had been killed before it wrote this
    bind(tmp_path, None)
    assert bucket_server.objects(address).keys() == {OWNER}


@pytest.mark.parametrize("content", ["", "{}", '{"address": "models", "owner": "x", "copies_bytes": 1}'])
def test_a_damaged_link_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / BINDING).write_text(content)
    with pytest.raises(MistifyError, match=f"{BINDING} cannot be read") as raised:
        opened_artifacts(tmp_path)
    assert raised.value.code is ErrorCode.STORE_VERSION


def test_a_machine_gets_a_store_for_its_workers(tmp_path: Path) -> None:
    binding = Binding(address="s3://models/mistify", owner="x", copies_bytes=1)
    store = tmp_path / "mistify" / "store"
    for _ in range(2):
        record_binding(store, binding)
        assert binding_of(store) == binding
    assert (store / "logs").is_dir()

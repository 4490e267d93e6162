"""The link between a store and the bucket with its artifacts."""

import logging
from pathlib import Path
from typing import Annotated, Final
from uuid import uuid4

from pydantic import AfterValidator, BaseModel

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.wording import counted
from mistify_server.store.artifacts import ARTIFACTS, Artifacts, artifacts_of, digest_of, is_intact
from mistify_server.store.links import read_link, write_link
from mistify_server.store.lock import make_store_directory, store_errors
from mistify_server.store.objects.address import BucketAddress, checked_bucket
from mistify_server.store.objects.artifacts import BucketArtifacts
from mistify_server.store.objects.bucket import Bucket

#: Name of the file in the directory of a store.
BINDING: Final = "artifacts.json"

#: Key of the object with the id of the store to which a bucket's directory belongs.
OWNER: Final = "store"

_log = logging.getLogger(__name__)


class Binding(BaseModel):
    """Where the artifacts of a store are.

    Attributes:
        address: The address of their directory in a bucket.
        owner: The random id that this directory has as well.
        copies_bytes: Limit on the total size of the copies on each machine.
    """

    address: Annotated[str, AfterValidator(checked_bucket)]
    owner: str
    copies_bytes: int

    def artifacts(self, directory: Path, patience: float = 0) -> BucketArtifacts:
        """Return the artifacts, with their copies in a store's directory."""
        bucket = Bucket(BucketAddress.of(self.address))
        return BucketArtifacts(directory / ARTIFACTS, bucket, self.copies_bytes, patience)


def opened_artifacts(directory: Path, patience: float = 0) -> Artifacts:
    """Return the artifacts of a store, in its directory or in its bucket.

    They are the only part of a store that workers need.

    Args:
        patience: Seconds for which an upload is repeated while the bucket is unavailable.

    Raises:
        MistifyError: STORE_VERSION, the link to the bucket cannot be read.
    """
    binding = binding_of(directory)
    return artifacts_of(directory) if binding is None else binding.artifacts(directory, patience)


def binding_of(directory: Path) -> Binding | None:
    """Return the link of a store to its bucket; None if it has none.

    Raises:
        MistifyError: STORE_VERSION, it cannot be read.
    """
    return read_link(directory / BINDING, Binding)


def record_binding(directory: Path, binding: Binding) -> None:
    """Record a link in a store's directory, which is created if it does not exist.

    Raises:
        MistifyError: UNAVAILABLE, it cannot be written.
    """
    make_store_directory(directory)
    with store_errors(directory), locked(directory):  # several workers of a machine may start at once
        if binding_of(directory) != binding:
            write_link(directory / BINDING, binding)


def bind_artifacts(directory: Path, address: str | None, copies_bytes: int) -> None:
    """Link a store to a directory in a bucket, or check the link that it has; the caller holds its lock.

    Artifacts that the store has in its own directory are uploaded.

    Args:
        address: The address in the bucket; None for the one that the store had before, or for no bucket.
        copies_bytes: Limit on the total size of the copies on each machine.

    Raises:
        MistifyError: CONFLICT, the directory in the bucket belongs to another store; UNAVAILABLE, the bucket
            cannot be used; INVALID_CONFIG, its client is not installed.
    """
    before = binding_of(directory)
    if address is None and before is not None:
        address = before.address
    if address is None:
        return
    bucket = Bucket(BucketAddress.of(address), f"the bucket of {address}")
    owner = (bucket.read(OWNER) or b"").decode(errors="replace")
    if before is None:
        if owner:
            raise _foreign(address, directory)
        after = Binding(address=address, owner=uuid4().hex, copies_bytes=copies_bytes)
        _upload(directory, after)
    else:
        after = before.model_copy(update={"address": address, "copies_bytes": copies_bytes})
        if owner and owner != before.owner:
            raise _foreign(address, directory)
        if not owner and address != before.address:
            raise MistifyError(
                ErrorCode.CONFLICT,
                f"{address} has no artifacts, those of the store {directory} are in {before.address}; copy "
                "all objects from there first (aws s3 sync), or omit --artifacts",
            )
    record_binding(directory, after)
    if not owner:
        bucket.write(OWNER, after.owner.encode())


def _upload(directory: Path, binding: Binding) -> None:
    """Upload the intact artifacts in a store's own directory."""
    own, artifacts = artifacts_of(directory), binding.artifacts(directory)
    names = [name for name in own.names() if is_intact(own.place(name), digest_of(name))]
    if names:
        _log.info("uploading %s to %s", counted(len(names), "artifact"), binding.address)
    for name in names:
        artifacts.upload(name)


def _foreign(address: str, directory: Path) -> MistifyError:
    return MistifyError(
        ErrorCode.CONFLICT,
        f"{address} has the artifacts of another store than {directory}; use the --store whose {BINDING} "
        "names it, or another directory of the bucket",
    )

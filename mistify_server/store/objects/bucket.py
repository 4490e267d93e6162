"""A directory in a bucket of S3, or of another program with the same interface."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.objects.address import BucketAddress
from mistify_server.store.objects.failures import code_of, failure_of

#: Number of requests at the same time.
CONNECTIONS: Final = 16

#: The most by which the clocks of S3 and of this machine differ, in seconds: S3 refuses requests above it.
CLOCKS_SECONDS: Final = 900.0

#: Seconds to wait for a connection, and for an answer on it.
_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 30

_PIECE: Final = 1 << 20

_log = logging.getLogger(__name__)


class StoredObject(NamedTuple):
    """The size of an object in bytes, and when it was stored, in seconds since 1970 by the clock of S3."""

    size: int
    stored: float


class _Connection(NamedTuple):
    """A session with the credentials that it has read, and its client of S3."""

    session: Any
    client: Any


class Bucket:
    """The objects in a directory of a bucket, by their keys in it. Threads can share it.

    Endpoint, region and credentials are those of AWS's environment variables and files. Nothing is requested
    before the first call. Methods raise `MistifyError`: UNAVAILABLE, S3 cannot be reached, is slow or fails;
    STORE_REFUSED, it refuses the credentials or what they are used for, or there is no such bucket;
    INVALID_CONFIG, its client is not installed, or AWS_ENDPOINT_URL is invalid.

    Args:
        name: Description in errors. Callers of a server see these, so only its log has the address and the
            id of the access key.
    """

    def __init__(self, address: BucketAddress, name: str = "the bucket with the server's artifacts") -> None:
        self._address = address
        self._name = name
        self._connection: _Connection | None = None
        #: Held while a connection is made, so that threads share one, with its credentials.
        self._connecting = Lock()

    def upload(self, key: str, path: Path) -> None:
        """Store a file; others see the whole object or, before and after a failure, none."""
        with self._requests() as client, path.open("rb") as file:
            client.upload_fileobj(file, self._address.bucket, self._full(key))

    def write(self, key: str, content: bytes) -> None:
        """Store a small object."""
        with self._requests() as client:
            client.put_object(Bucket=self._address.bucket, Key=self._full(key), Body=content)

    def content(self, key: str) -> Iterator[bytes] | None:
        """Return the content of an object in pieces; None if there is no object."""
        with self._requests() as client:
            try:
                answer = client.get_object(Bucket=self._address.bucket, Key=self._full(key))
            except client.exceptions.NoSuchKey:
                return None
        return self._pieces(answer["Body"])

    def read(self, key: str) -> bytes | None:
        """Return the content of a small object; None if there is no object."""
        pieces = self.content(key)
        return None if pieces is None else b"".join(pieces)

    def find(self, key: str) -> StoredObject | None:
        """Return the size and age of an object; None if there is no object."""
        with self._requests() as client:
            try:
                head = client.head_object(Bucket=self._address.bucket, Key=self._full(key))
            except client.exceptions.ClientError as error:
                if code_of(error) != "404":
                    raise
                client.head_bucket(Bucket=self._address.bucket)  # fails if even the bucket is missing
                return None
        return StoredObject(head["ContentLength"], head["LastModified"].timestamp())

    def all(self, start: str = "") -> dict[str, StoredObject]:
        """Return all objects whose keys begin with a text, by key."""
        objects = {}
        with self._requests() as client:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self._address.bucket, Prefix=self._full(start)
            )
            for item in (item for page in pages for item in page.get("Contents", ())):
                key = item["Key"].removeprefix(self._address.prefix)
                objects[key] = StoredObject(item["Size"], item["LastModified"].timestamp())
        return objects

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with self._requests() as client:
            client.delete_object(Bucket=self._address.bucket, Key=self._full(key))

    def _full(self, key: str) -> str:
        return self._address.prefix + key

    def _pieces(self, body: Any) -> Iterator[bytes]:
        with self._requests(), closing(body):
            yield from body.iter_chunks(_PIECE)

    @contextmanager
    def _requests(self) -> Iterator[Any]:
        """Yield the client of S3, and translate the failures of its requests within the block."""
        try:
            from boto3.exceptions import Boto3Error  # noqa: PLC0415 (optional)
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                "artifacts in S3 need its client: run pip install 'mistify-porting[s3]', or omit --artifacts "
                "for artifacts in the store",
            ) from error
        connection = None
        try:
            connection = self._connected()
            yield connection.client
        except (Boto3Error, BotoCoreError, ClientError) as error:
            failure = failure_of(error)
            with_key = f" with the access key {_access_key(connection)}" if failure.refused else ""
            _log.warning("%s cannot be used%s: %s", self._address, with_key, error)
            if failure.refused:
                self._forget(connection)
            code = ErrorCode.STORE_REFUSED if failure.refused else ErrorCode.UNAVAILABLE
            raise MistifyError(code, f"{self._name} {failure.advice}") from error

    def _connected(self) -> _Connection:
        """Return the connection that all threads share; the first one makes it."""
        with self._connecting:
            if self._connection is None:
                self._connection = _connect()
            return self._connection

    def _forget(self, connection: _Connection | None) -> None:
        """Have the next request read the credentials again, which may be corrected meanwhile."""
        with self._connecting:
            if self._connection is connection:  # otherwise, another thread has forgotten it
                self._connection = None


def _connect() -> _Connection:
    """Read the credentials, and return a client that uses them."""
    from boto3.session import Session  # noqa: PLC0415 (optional)
    from botocore.config import Config  # noqa: PLC0415

    settings = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_ANSWER_SECONDS,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard"},
    )
    session = Session()
    try:
        return _Connection(session, session.client("s3", config=settings))
    except ValueError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, f"S3 cannot be used: {error}; correct AWS_ENDPOINT_URL"
        ) from error


def _access_key(connection: _Connection | None) -> str:
    """Return the id of the access key, which is not secret; "-" if there is none."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (optional)

    try:
        credentials = None if connection is None else connection.session.get_credentials()
        return "-" if credentials is None else str(credentials.access_key)
    except (BotoCoreError, ClientError):  # temporary ones cannot be renewed
        return "-"

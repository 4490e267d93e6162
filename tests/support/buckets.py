"""Buckets of a real S3 server on this machine, which can be away."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from mistify_server.store.lock import locked_store
from mistify_server.store.objects.address import BucketAddress
from mistify_server.store.objects.artifacts import BucketArtifacts
from mistify_server.store.objects.binding import bind_artifacts, opened_artifacts
from mistify_server.store.objects.bucket import Bucket
from tests.support.relay import Relay

#: Serves until its standard input closes.
_SERVER: Final = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), sep=":", flush=True)
sys.stdin.read()
"""

#: A limit on copies that no test reaches.
LARGE: Final = 10**9


@dataclass
class BucketServer:
    """A running S3 server behind a relay, which tests close in order to make it unreachable.

    Attributes:
        address: `host:port` of the server itself.
        relay: The relay that clients use.
    """

    address: str
    relay: Relay
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables of clients."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.relay.address}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    def new_bucket(self) -> str:
        """Create a bucket, and return the address of a directory in it."""
        name = f"bucket-{next(self._numbers)}"
        self.client.create_bucket(Bucket=name)
        return f"s3://{name}/store"

    @cached_property
    def client(self) -> Any:
        """Return a client that reaches the server even while others cannot."""
        from boto3.session import Session

        variables = self.variables
        return Session(
            variables["AWS_ACCESS_KEY_ID"],
            variables["AWS_SECRET_ACCESS_KEY"],
            region_name=variables["AWS_DEFAULT_REGION"],
        ).client("s3", endpoint_url=f"http://{self.address}")

    def objects(self, address: str) -> dict[str, bytes]:
        """Return all objects below an address, by their keys there."""
        place = BucketAddress.of(address)
        listed = self.client.list_objects_v2(Bucket=place.bucket, Prefix=place.prefix)
        return {
            item["Key"].removeprefix(place.prefix): self.client.get_object(
                Bucket=place.bucket, Key=item["Key"]
            )["Body"].read()
            for item in listed.get("Contents", ())
        }

    def replace(self, address: str, key: str, content: bytes) -> None:
        """Replace an object below an address."""
        place = BucketAddress.of(address)
        self.client.put_object(Bucket=place.bucket, Key=place.prefix + key, Body=content)

    def remove(self, address: str, key: str) -> None:
        """Delete an object below an address."""
        place = BucketAddress.of(address)
        self.client.delete_object(Bucket=place.bucket, Key=place.prefix + key)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Cut all connections to the server, and refuse new ones, within the block."""
        port = int(self.relay.address.rpartition(":")[2])
        self.relay.close()
        try:
            yield
        finally:
            self.relay = Relay(self.address, port)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse every request, because nobody has the access keys of its clients, within the block."""
        self._check_keys_after("0")
        try:
            yield
        finally:
            self._check_keys_after("inf")

    def _check_keys_after(self, requests: str) -> None:
        url = f"http://{self.address}/moto-api/reset-auth"
        urlopen(Request(url, requests.encode(), {"Content-Type": "text/plain"})).close()


@contextmanager
def running_bucket_server() -> Iterator[BucketServer]:
    """Run an S3 server within the block; skip the test if it or its client is not installed."""
    for module in ("boto3", "moto", "flask", "flask_cors"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, "the S3 server has ended"
        server = BucketServer(address, Relay(address))
        try:
            yield server
        finally:
            server.relay.close()
    finally:
        process.stdin.close()
        process.wait(60)


def in_bucket(
    address: str, directory: Path, copies_bytes: int = LARGE, patience: float = 0
) -> BucketArtifacts:
    """Return artifacts in a bucket with their copies in a directory, without a store."""
    return BucketArtifacts(directory, Bucket(BucketAddress.of(address)), copies_bytes, patience)


def with_bucket(address: str, directory: Path) -> BucketArtifacts:
    """Give a store its artifacts in a bucket, and return them."""
    with locked_store(directory):
        bind_artifacts(directory, address, LARGE)
    opened = opened_artifacts(directory)
    assert isinstance(opened, BucketArtifacts)
    return opened

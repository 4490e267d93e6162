"""Small packages, signed as a server signs them."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from mistify.ed25519 import PrivateKey
from mistify.package.manifest import MANIFEST, Manifest, MeasuredLatency, TensorInfo, Versions
from mistify.package.records import PackagedFile
from mistify.package.signature import SIGNATURE_FILE, KeyChain, PackageSignature


def write_package(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Write a package with these files and a small manifest, and return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    Manifest(
        job="job-1",
        goal="half",
        budget={"flops": 6.25e6},
        achieved={"flops": 6.1e6},
        accuracy=0.76,
        validation_accuracy=0.78,
        latency=MeasuredLatency(median_ms=0.4, p95_ms=0.5, runs=50, threads=1, machine="x86", runtime="2.3"),
        inputs=(TensorInfo(name="image", dtype="float32", shape=(-1, 2, 2, 3)),),
        outputs=(TensorInfo(name="probabilities", dtype="float32", shape=(-1, 10)),),
        versions=Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        files={name: PackagedFile.of(content) for name, content in files.items()},
        created=datetime(2026, 1, 2, tzinfo=UTC),
    ).save(directory)
    return directory


def sign_package(directory: Path, key: PrivateKey, keys: KeyChain | None = None) -> bytes:
    """Sign a package with the current key of a server, and return the content of its signature.

    Args:
        keys: All keys of the server; None if it has only the one.
    """
    digest = hashlib.sha256((directory / MANIFEST).read_bytes()).hexdigest()
    content = PackageSignature.of(digest, keys or KeyChain(first=key.public), key).content
    (directory / SIGNATURE_FILE).write_bytes(content)
    return content


def flipped(content: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield the content with one of its bits flipped: each bit, or each `step`-th one."""
    for place in range(0, 8 * len(content), step):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << (place % 8)
        yield bytes(changed)

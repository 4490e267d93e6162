"""Predictions of peers for the device's data: their weights in their packages' networks (paper 5.1).

Files below the tuner's directory:

    weights/                    of peers, by digest (`mistify_client.rpc.peer_files`)
    packages/DIGEST/            the network and the manifest of a package, by the network's digest
    outputs/DATA/PEER/N.npy     a peer's predictions for all examples, the N-th output
    outputs/partial/            predictions that are still being written

So nothing is downloaded or computed twice, and outputs need not fit into memory.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.writing import sync_file
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.records import describe_file
from mistify.package.training import Training, with_weights
from mistify.package.weights import read_weights
from mistify.peers.membership import PackageReference, Peer
from mistify_client.examples import Examples
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.interchangeable import check_interchangeable
from mistify_client.runtime.interpreter import Network
from mistify_client.runtime.trust import Trust, check_trusted
from mistify_client.tuning.peers.ensemble import Predictions
from mistify_client.tuning.storage import stored_in

#: Examples per batch of predictions.
_CHUNK = 64

_PARTIAL = "partial"
_FLOAT32 = "<f4"

#: Downloads the network and the manifest of a package into a directory.
Fetch = Callable[[PackageReference, Path], object]


class PeerModels:
    """The packages that peers have tuned, each downloaded once.

    Args:
        directory: The directory of the packages.
        own: The manifest of the own package; all others must have the same inputs and outputs.
        fetch: Downloads a package.
    """

    def __init__(self, directory: Path, own: Manifest, fetch: Fetch) -> None:
        self._directory = directory
        self._own = own
        self._fetch = fetch

    def get(self, reference: PackageReference) -> tuple[Manifest, bytes]:
        """Return the manifest and the network of a package; download it if it is missing or damaged.

        Raises:
            MistifyError: UNAVAILABLE, NO_ROOM, NOT_FOUND or another error of the download, the package cannot
                be fetched; CORRUPT_PACKAGE, the network is not the one that the peer has tuned, or a file is
                damaged; STORE_VERSION, a newer version of Mistify made the package; UNTRUSTED, no trusted key
                has signed it; INVALID_CONFIG, the file of trusted keys cannot be used; INVALID_MODEL, its
                inputs or outputs differ from those of the own package.
        """
        directory = self._path(reference)
        try:
            manifest, network = _read(reference, directory)
        except MistifyError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.CORRUPT_PACKAGE, ErrorCode.UNTRUSTED):
                raise
            with stored_in(directory):
                self._fetch(reference, directory)  # resumes an interrupted download
            manifest, network = _read(reference, directory)
        check_interchangeable(self._own, manifest, directory)
        return manifest, network

    def keep(self, references: Collection[PackageReference]) -> None:
        """Remove all other packages."""
        kept = set(map(self._path, references))
        for directory in self._directory.glob("*"):
            if directory not in kept:
                shutil.rmtree(directory, ignore_errors=True)

    def _path(self, reference: PackageReference) -> Path:
        return self._directory / sha256(reference.sha256.encode()).hexdigest()


def _read(reference: PackageReference, directory: Path) -> tuple[Manifest, bytes]:
    """Return the manifest and the network of a package in a directory.

    Raises:
        MistifyError: NOT_FOUND, one of them is missing; CORRUPT_PACKAGE, the network is not the one that the
            peer has tuned, or the manifest cannot be read; UNTRUSTED, no trusted key has signed them.
    """
    path = directory / NETWORK
    if not path.is_file():
        raise MistifyError(ErrorCode.NOT_FOUND, f"{directory} is not a package: it has no {NETWORK}")
    if describe_file(path).sha256 != reference.sha256:
        reason = f"the package of the goal {reference.goal_id} is not the one that the peer has tuned"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, reason)
    package = Package.open(directory)
    check_trusted(package, Trust.configured())
    return package.manifest, package.read(NETWORK)


class PeerOutputs:
    """The predictions of peers for the device's examples, stored on disk.

    Args:
        directory: The directory of the predictions, for these examples only.
        examples: All examples of the device.
    """

    def __init__(self, directory: Path, examples: Examples) -> None:
        self._directory = directory
        self._examples = examples

    def key(self, peer: Peer) -> str:
        """Return the name of a peer's stored outputs, from its package and its weights."""
        return sha256(f"{peer.package.sha256}{peer.sha256}".encode()).hexdigest()

    def has(self, key: str) -> bool:
        """Return whether the outputs of a peer are stored."""
        return (self._directory / key).is_dir()

    def read(self, key: str, manifest: Manifest) -> Predictions:
        """Return the outputs of a peer, [examples, ...] by output, memory-mapped.

        Args:
            key: Key of the peer's outputs.
            manifest: Names the outputs.

        Raises:
            MistifyError: CORRUPT_PACKAGE, one of the files is damaged.
        """
        paths = {info.name: self._directory / key / f"{at}.npy" for at, info in enumerate(manifest.outputs)}
        try:
            return {name: np.load(path, mmap_mode="r") for name, path in paths.items()}
        except (OSError, ValueError, EOFError) as error:
            problem = Problem(str(self._directory / key), str(error), "outputs of a peer", "remove it")
            message = "the predictions of a peer cannot be read"
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message, [problem]) from error

    def compute(self, file: PeerFile, packages: PeerModels) -> str:
        """Run a peer on all examples, unless its outputs are already stored.

        Args:
            file: The peer and its weights.
            packages: Provide its network.

        Returns:
            The key of its outputs.

        Raises:
            MistifyError: INVALID_PUBLICATION, its weights or its network cannot be used, for example because
                it needs a newer LiteRT; UNAVAILABLE, the outputs cannot be written, for example on a full
                disk; this, NO_ROOM, NOT_FOUND or another error of the download, its package cannot be
                fetched; CORRUPT_PACKAGE, the network is not the one that the peer has tuned, or a file is
                damaged; STORE_VERSION, a newer version of Mistify made the package; UNTRUSTED, no trusted key
                has signed it; INVALID_CONFIG, the file of trusted keys cannot be used; INVALID_MODEL, its
                inputs or outputs differ from those of the own package.
        """
        key = self.key(file.peer)
        if self.has(key):
            return key
        manifest, content = packages.get(file.peer.package)
        if manifest.training is None:
            reason = f"the package of the goal {file.peer.package.goal_id} has no weights to tune"
            raise MistifyError(ErrorCode.INVALID_PUBLICATION, reason)
        weights = read_weights(file.path, manifest.tunable)
        try:
            tuned = with_weights(content, manifest.training, weights)
            network = Network(manifest, tuned, manifest.latency.threads)
            self._write(key, network, manifest.training)
        except (KeyError, ValueError, RuntimeError) as error:
            reason = f"the network of the goal {file.peer.package.goal_id} cannot be used: {error}"
            raise MistifyError(ErrorCode.INVALID_PUBLICATION, reason) from error
        return key

    def keep(self, keys: Collection[str]) -> None:
        """Remove the outputs of all other peers, and for other examples."""
        for directory in (*self._directory.parent.glob("*"), *self._directory.glob("*")):
            if directory.name not in keys and directory != self._directory:
                shutil.rmtree(directory, ignore_errors=True)

    def _write(self, key: str, network: Network, training: Training) -> None:
        """Write outputs chunk by chunk, all or nothing."""
        partial = self._directory.with_name(_PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
        try:
            with stored_in(self._directory):
                self._directory.mkdir(parents=True, exist_ok=True)
                partial.mkdir()
                _save(_predictions(network, training, self._examples), len(self._examples), partial)
                partial.replace(self._directory / key)
        finally:
            shutil.rmtree(partial, ignore_errors=True)  # complete outputs have been moved


def _predictions(network: Network, training: Training, examples: Examples) -> Iterator[list[Array]]:
    """Yield the predictions for each chunk of the examples, as a list in the order of the outputs."""
    for chunk in examples.chunks(_CHUNK):
        outputs = network(bind(network.manifest.inputs, (), chunk.inputs), 0)
        yield [training.kinds[info.name].predictions(outputs[info.name]) for info in network.manifest.outputs]


def _save(chunks: Iterable[list[Array]], count: int, directory: Path) -> None:
    """Save chunks of outputs as float32 in `.npy` files, one for each output.

    The files are written, not mapped: on a full disk, storing to a mapped page would crash the process.

    Args:
        chunks: Lists of [examples, ...], in the order of the outputs.
        count: Total number of examples in all chunks.
        directory: The directory for the files.

    Raises:
        OSError: The files cannot be written.
    """
    with ExitStack() as stack:
        files: list[BinaryIO] = []
        for outputs in chunks:
            for at, output in enumerate(outputs):
                if at == len(files):
                    files.append(stack.enter_context((directory / f"{at}.npy").open("wb")))
                    shape = (count, *output.shape[1:])
                    header = {"descr": _FLOAT32, "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(files[at], header)
                files[at].write(np.ascontiguousarray(output, _FLOAT32).data)
        for file in files:
            sync_file(file)

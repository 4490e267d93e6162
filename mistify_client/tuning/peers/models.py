"""What peers say of the device's data: their weights in their packages' networks, run once (paper 5.1).

Below the tuner's directory lie

    weights/                    of peers, by digest (`mistify_client.rpc.peer_files`)
    packages/DIGEST/            the network and the manifest of a package, by the network's digest
    outputs/DATA/PEER/N.npy     what a peer says of all examples, the N-th output
    outputs/partial/            the same while it is written

so that nothing is downloaded or computed twice, and outputs need not fit into memory.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.files import sync_file
from mistify.package.manifest import Manifest, describe_file
from mistify.package.training import Training, with_weights
from mistify.package.weights import read_weights
from mistify.peers.membership import PackageReference, Peer
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.interpreter import NETWORK, Execution, Network
from mistify_client.runtime.versions import check_interchangeable
from mistify_client.tuning.examples import Examples
from mistify_client.tuning.peers.ensemble import Told
from mistify_client.tuning.storage import stored_in

#: Examples that a peer is asked about at a time.
_CHUNK = 64

_PARTIAL = "partial"
_FLOAT32 = "<f4"

#: Downloads network and manifest of a package into a directory.
Fetch = Callable[[PackageReference, Path], object]


class PeerModels:
    """The packages that peers have tuned, each downloaded once.

    Args:
        directory: where they lie.
        own: a package whose inputs and outputs all have.
        fetch: downloads one.
    """

    def __init__(self, directory: Path, own: Manifest, fetch: Fetch) -> None:
        self._directory = directory
        self._own = own
        self._fetch = fetch

    def get(self, reference: PackageReference) -> tuple[Manifest, bytes]:
        """Its manifest and its network.

        Raises:
            MistifyError: whatever downloading raises; UNAVAILABLE, there is no room for it; CORRUPT_PACKAGE,
                the network is another one than was tuned; INVALID_MODEL, it takes or gives something else
                than the own one.
        """
        directory = self._directory / sha256(reference.sha256.encode()).hexdigest()
        try:
            manifest, network = _read(reference, directory)
        except MistifyError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.CORRUPT_PACKAGE):
                raise
            with stored_in(directory):
                self._fetch(reference, directory)  # the rest of it, where that was broken off
            manifest, network = _read(reference, directory)
        check_interchangeable(self._own, manifest, directory)
        return manifest, network


def _read(reference: PackageReference, directory: Path) -> tuple[Manifest, bytes]:
    """The manifest and the network of a package that lies in a directory.

    Raises:
        MistifyError: NOT_FOUND, one of them is missing; CORRUPT_PACKAGE, the network is another one than was
            tuned, or the manifest is none.
    """
    path = directory / NETWORK
    if not path.is_file():
        raise MistifyError(ErrorCode.NOT_FOUND, f"{directory} is no package: it has no {NETWORK}")
    if describe_file(path).sha256 != reference.sha256:
        reason = f"the package of the goal {reference.goal_id} is not the one that the peer has tuned"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, reason)
    return Manifest.load(directory), path.read_bytes()


class PeerOutputs:
    """What peers say of the device's examples.

    Args:
        directory: where it is kept; of these examples alone.
        examples: all that the device has.
    """

    def __init__(self, directory: Path, examples: Examples) -> None:
        self._directory = directory
        self._examples = examples

    def key(self, peer: Peer) -> str:
        """The name under which a peer's outputs are kept: another one for other weights."""
        return sha256(f"{peer.package.sha256}{peer.sha256}".encode()).hexdigest()

    def has(self, key: str) -> bool:
        """Whether the outputs of a peer are there."""
        return (self._directory / key).is_dir()

    def read(self, key: str, manifest: Manifest) -> Told:
        """The outputs of a peer, [examples, ...] each, which stay on disk until they are used."""
        return {
            info.name: np.load(self._directory / key / f"{at}.npy", mmap_mode="r")
            for at, info in enumerate(manifest.outputs)
        }

    def compute(self, file: PeerFile, packages: PeerModels) -> str:
        """Run a peer on all examples, unless that was done; its key.

        Raises:
            MistifyError: INVALID_PUBLICATION, its weights or its network cannot be used, for example because
                it is for a newer LiteRT; UNAVAILABLE, what it says cannot be written, for example on a full
                disk; as `PeerModels.get`.
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
            network = Network(manifest, with_weights(content, manifest.training, weights), Execution())
            self._write(key, network, manifest.training)
        except (KeyError, ValueError, RuntimeError) as error:
            reason = f"the network of the goal {file.peer.package.goal_id} cannot be used: {error}"
            raise MistifyError(ErrorCode.INVALID_PUBLICATION, reason) from error
        return key

    def keep(self, keys: Collection[str]) -> None:
        """Remove the outputs of all other peers, and of other examples."""
        for directory in (*self._directory.parent.glob("*"), *self._directory.glob("*")):
            if directory.name not in keys and directory != self._directory:
                shutil.rmtree(directory, ignore_errors=True)

    def _write(self, key: str, network: Network, training: Training) -> None:
        """Write outputs chunk by chunk: they are there completely or not at all."""
        partial = self._directory.with_name(_PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
        try:
            with stored_in(self._directory):
                self._directory.mkdir(parents=True, exist_ok=True)
                partial.mkdir()
                _save(_told(network, training, self._examples), len(self._examples), partial)
                partial.replace(self._directory / key)
        finally:
            shutil.rmtree(partial, ignore_errors=True)  # complete outputs have left it


def _told(network: Network, training: Training, examples: Examples) -> Iterator[list[Array]]:
    """Chunks of what a network says of examples: the outputs in their order."""
    for chunk in examples.chunks(_CHUNK):
        found = network(bind(network.manifest.inputs, (), chunk.inputs), 0)
        yield [training.kinds[info.name].predictions(found[info.name]) for info in network.manifest.outputs]


def _save(told: Iterable[list[Array]], count: int, directory: Path) -> None:
    """Save chunks of outputs, of so many examples in all, as float32 in `.npy` files.

    They are written, not mapped: storing to a page that has no room on a full disk would kill the process.

    Raises:
        OSError: they cannot be written.
    """
    with ExitStack() as stack:
        files: list[BinaryIO] = []
        for outputs in told:
            for at, output in enumerate(outputs):
                if at == len(files):
                    files.append(stack.enter_context((directory / f"{at}.npy").open("wb")))
                    shape = (count, *output.shape[1:])
                    header = {"descr": _FLOAT32, "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(files[at], header)
                files[at].write(np.ascontiguousarray(output, _FLOAT32).data)
        for file in files:
            sync_file(file)

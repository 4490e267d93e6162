"""Slices of a ladder, cut when they are needed.

`python -m mistify_client.slicing.cutting PACKAGE ID` cuts a slice for the task that the package serves, and
keeps it in the package's state.
"""

import sys
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.factory import AskedTask, FactoryStore
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.profiling.measuring import random_input
from mistify.tflite.resizable import resizable
from mistify_client.assembly.ladder import CUT, Rung, SliceLadder
from mistify_client.assembly.made_networks import MadeNetworks, key_of
from mistify_client.runtime.interpreter import Network, zeros
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.slicing.candidates import SliceCandidate, candidates
from mistify_client.slicing.customizing import factory_of, unusable_reported

#: Version of the cutting. Changes to it need a new number, so that old files are not used.
_FORMAT: Final = 1


def slice_key(store: FactoryStore, task: AskedTask, limit: float) -> str:
    """Return the key of a slice among the networks that were cut."""
    return key_of(str(_FORMAT), store.supernet.sha256, store.assembler.sha256, str(task), repr(limit))


def served_task(version: Package, store: FactoryStore) -> AskedTask:
    """Return the task that a version of a package serves, as its factory knows it.

    Raises:
        MistifyError: NOT_FOUND, it serves no single task; INVALID_CONFIG, the factory has no such task.
    """
    task = version.manifest.task
    if task is None:
        message = f"{version.directory} serves no single task; mistify customize makes a network for one"
        raise MistifyError(ErrorCode.NOT_FOUND, message)
    return store.asked(task.properties or task.classes)


def cut_slice(package: Path, rung: Rung) -> bytes:
    """Return the `.tflite` of a slice for the task that a package serves.

    Args:
        package: The directory of the shipped package.
        rung: The slice, in the ladder of the current version.

    Raises:
        MistifyError: NOT_FOUND, no version of the package has a factory, or the current one serves no single
            task; INVALID_CONFIG, the factory has no such task; CONFLICT, the slice is of another network;
            STORE_VERSION, a newer version of Mistify wrote the package; CORRUPT_PACKAGE, a file is missing or
            damaged, or the network cannot be cut as described; INVALID_MODEL, the slice computes infinity or
            NaN.
    """
    (source, store), version = factory_of(package), open_current(package)
    task = served_task(version, store)
    if slice_key(store, task, rung.limit) != rung.key:
        message = f"{rung.id} is of another network than {source.directory}; the monitor offers others"
        raise MistifyError(ErrorCode.CONFLICT, message)
    supernet, assembler = store.map_supernet(source.directory), store.read_assembler(source.directory)
    with unusable_reported(source):
        (candidate,) = candidates(store, assembler, task, [rung.limit])
        return checked_slice(supernet, store, candidate, version.manifest)


def checked_slice(
    supernet: bytes | mmap, store: FactoryStore, candidate: SliceCandidate, manifest: Manifest
) -> bytes:
    """Cut a slice, and check that it can take the place of a network.

    Args:
        supernet: Content of the whole network's `.tflite`.
        manifest: The manifest of that network.

    Raises:
        MistifyError: INVALID_MODEL, it computes infinity or NaN.
        ValueError: It cannot be cut as described, or has other inputs or outputs.
        RuntimeError: LiteRT refuses it.
    """
    content = candidate.cut(supernet, store.places)
    inputs = {name: random_input(zero.shape, zero.dtype) for name, zero in zeros(manifest.inputs).items()}
    outputs = Network(manifest, resizable(content), threads=1)(inputs, 0)
    if not all(np.isfinite(output).all() for output in outputs.values()):
        message = f"the slice within {candidate.limit:.3g} gives outputs that are not finite"
        raise MistifyError(ErrorCode.INVALID_MODEL, message)
    return content


def cut_networks(package: Path) -> MadeNetworks:
    """Return the slices of a package that were cut.

    Args:
        package: The directory of the shipped package.
    """
    return MadeNetworks(state_directory(package) / CUT)


def main(package: str, option: str) -> None:
    """Cut a slice of a package's ladder, unless it has been."""
    directory = Path(package)
    try:
        ladder = SliceLadder.of(open_current(directory), state_directory(directory))
        rung = None if ladder is None else ladder.rung(option)
        if rung is None:
            raise MistifyError(ErrorCode.NOT_FOUND, f"{directory} offers no {option}")
        cut_networks(directory).make(rung.key, partial(cut_slice, directory, rung))
    except (MistifyError, OSError) as error:
        sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    main(*sys.argv[1:])

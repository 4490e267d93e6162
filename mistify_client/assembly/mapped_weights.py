"""Weights as LiteRT packs them for its kernels, in files that all processes of a device map.

LiteRT does not notice changed weights in such a file and computes other outputs, so every file is verified
before LiteRT maps it.
"""

import hashlib
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from mistify.litert import open_compiled
from mistify.machine import machine, runtime
from mistify_client.assembly.made_networks import MadeNetworks, key_of
from mistify_client.assembly.memory import return_memory

_PACKED: Final = ".xnnpack"

logger = logging.getLogger(__name__)


class MappedFiles(NamedTuple):
    """The files of a network that is mapped into memory.

    Attributes:
        network: The `.tflite`, whose weights are not read.
        weights: The packed weights.
    """

    network: Path
    weights: Path


def mapped_weights(directory: Path, network: bytes) -> MappedFiles | None:
    """Return the files of a network and of its packed weights; make those that are missing or damaged.

    Args:
        directory: The directory of these files, which need not exist.
        network: The content of a `.tflite` file.

    Returns:
        None if the files cannot be written, which is logged, or if LiteRT packs no weights.

    Raises:
        RuntimeError: LiteRT cannot run the network.
    """
    key = key_of(hashlib.sha256(network).hexdigest(), machine(), runtime())
    networks, weights = MadeNetworks(directory / "networks"), MadeNetworks(directory / "packed", _PACKED)
    try:
        networks.make(key, lambda: network)
        if (own := _path(networks, key)) is None:
            return None
        weights.make(key, lambda: _packed(own))
    except FileNotFoundError:
        return None
    except OSError as error:
        message = "%s cannot be written, so every process has its own copy of the weights: %s"
        logger.warning(message, directory, error)
        return None
    packed = _path(weights, key)
    return None if packed is None else MappedFiles(own, packed)


def _path(made: MadeNetworks, key: str) -> Path | None:
    """Return the path of a file; None if another process, which uses other networks, has removed it."""
    file = made.find(key)
    if file is None:
        return None
    made.note_use(file)
    return made.directory / file.file


def _packed(network: Path) -> bytes:
    """Return the packed weights of a network.

    Raises:
        FileNotFoundError: LiteRT packs none.
    """
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "weights"
        open_compiled(network, 1, path)
        content = path.read_bytes()
    return_memory()
    return content

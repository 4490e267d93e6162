"""The network of a package, whose engine can change while it runs."""

from pathlib import Path
from typing import NamedTuple

from mistify.package.block_files import BlockFiles
from mistify.package.manifest import NETWORK, TensorInfo
from mistify.package.opened import Package
from mistify_client.assembly.chaining import Chain, LoadedBlock
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.made_networks import NetworkFile
from mistify_client.assembly.pager import Pager


class EngineFiles(NamedTuple):
    """The files that engines need.

    Attributes:
        directory: The directory of the network.
        network: Its file.
        inputs: Types and shapes of the inputs of that network.
        weights: The directory for `mapped_weights`.
    """

    directory: Path
    network: NetworkFile
    inputs: tuple[TensorInfo, ...]
    weights: Path

    @classmethod
    def of(cls, version: Package, weights: Path) -> "EngineFiles":
        """Return the files of a package's network.

        Args:
            weights: The directory for `mapped_weights`.
        """
        manifest = version.manifest
        return cls(version.directory, NetworkFile(NETWORK, manifest.files[NETWORK]), manifest.inputs, weights)

    def opened(self, engine: Engine, threads: int | None = None) -> Chain[Engine]:
        """Open the network with an engine.

        Args:
            threads: Number of threads of LiteRT; None for that of the engine.

        Raises:
            MistifyError: CORRUPT_PACKAGE, it is missing or damaged, or LiteRT cannot run it in this way.
        """
        weights = self.weights if engine.mapped_weights else None
        with BlockFiles(self.directory) as files:
            block = LoadedBlock(files, self.network, threads or engine.threads, engine.execution, weights)
        return Chain([block], engine)


class PagedEngines(Pager[Engine]):
    """The network of a package, in memory with one engine at a time."""

    def __init__(self, files: EngineFiles, first: Engine, threads: int | None = None) -> None:
        """Open the network with an engine.

        Args:
            threads: Number of threads of LiteRT with every engine; None for their own.

        Raises:
            MistifyError: CORRUPT_PACKAGE, it is missing or damaged, or LiteRT cannot run it in this way.
        """
        self._files = files
        self._threads = threads
        super().__init__(files.opened(first, threads))

    def _load(self, chosen: Engine) -> Chain[Engine]:
        return self._files.opened(chosen, self._threads)

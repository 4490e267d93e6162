"""Paging of slices: the package's own network or a slice for its task is in memory."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.package.block_files import BlockFiles
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify_client.assembly.chaining import Chain, LoadedBlock
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.ladder import CUT, CUTTER
from mistify_client.assembly.made_networks import MadeNetworks, NetworkFile
from mistify_client.assembly.pager import Pager

logger = logging.getLogger(__name__)


class SliceFiles(NamedTuple):
    """The networks of a package that serves a task.

    Attributes:
        shipped: The directory of the shipped package.
        version: Its current version.
        state: Its state directory.
        keys: Id of each slice -> its key among the networks that were cut; other ids are the version's own
            network.
    """

    shipped: Path
    version: Package
    state: Path
    keys: Mapping[str, str]


class PagedSlices(Pager[str]):
    """The own network of a package, which can switch to slices while it runs, and back.

    Networks are chosen by the ids of options. A slice that has not been cut, or whose file is damaged, is cut
    in another process.
    """

    def __init__(self, files: SliceFiles, first: str, threads: int) -> None:
        """Load a network.

        Args:
            first: The id of an option; a slice is not cut here, because that would keep an app waiting.

        Raises:
            MistifyError: NOT_FOUND, the slice has not been cut; CORRUPT_PACKAGE, a file is damaged.
        """
        self._files = files
        self._cut = MadeNetworks(files.state / CUT)
        self._threads = threads
        super().__init__(self._in_memory(first))

    def _load(self, chosen: str) -> Chain[str]:
        try:
            return self._in_memory(chosen)
        except MistifyError as error:
            if chosen not in self._files.keys:
                raise
            if error.code is ErrorCode.CORRUPT_PACKAGE:
                logger.warning("%s is cut again: %s", chosen, error)
        problem = self._process.run(CUTTER, str(self._files.shipped), chosen)
        if problem is not None:
            raise MistifyError(ErrorCode.NOT_FOUND, f"{chosen} cannot be cut: {problem}")
        return self._in_memory(chosen)

    def _in_memory(self, chosen: str) -> Chain[str]:
        """Return a network in memory, without cutting it."""
        if (key := self._files.keys.get(chosen)) is None:
            version = self._files.version
            own = NetworkFile(NETWORK, version.manifest.files[NETWORK])
            return self._chain(version.directory, own, chosen)
        network = self._cut.find(key)
        if network is None:
            raise MistifyError(ErrorCode.NOT_FOUND, "it has not been cut")
        chain = self._chain(self._cut.directory, network, chosen)
        self._cut.note_use(network)
        return chain

    def _chain(self, directory: Path, network: NetworkFile, chosen: str) -> Chain[str]:
        with BlockFiles(directory) as files:
            return Chain([LoadedBlock(files, network, self._threads, Execution.INTERPRETER)], chosen)

"""The subnets of a package, with the blocks of one in memory while another is loaded."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BLOCKS
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Run, Shapes, zeros
from mistify_client.runtime.options import Option, PackageOptions

#: Seconds until a failed load is retried: the cause may have gone.
RETRY_SECONDS: Final = 60.0

#: Seconds that a subnet runs as blocks before these are stitched: another switch may follow soon.
SETTLED_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class PagedSubnets:
    """The subnets of a package, for one thread at a time.

    The chosen subnet runs once its blocks are in memory. Until then, and if loading fails, the previous one
    runs; loading is retried after `RETRY_SECONDS`. The blocks of a subnet that has run for `SETTLED_SECONDS`
    are stitched in the background.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    def __init__(
        self,
        manifest: Manifest,
        subnets: Sequence[ChosenBlocks],
        network: PagedNetwork,
        threads: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.manifest = manifest
        self.threads = threads
        self._subnets = subnets
        self._network = network
        self._clock = clock
        self._blocks = network.running
        self._number = self._wanted = subnets.index(self._blocks)
        self._retry_at = math.inf
        self._stitch_at = clock() + SETTLED_SECONDS
        self._shapes: Shapes | None = None

    @property
    def shapes(self) -> Shapes | None:
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""
        return self._shapes

    @property
    def is_whole(self) -> bool:
        """True if the current subnet runs as one network, rather than as several blocks."""
        return self._network.is_whole

    def running(self, wanted: int) -> int:
        """Return the index of the subnet whose blocks are in memory, whichever is requested."""
        return self._subnets.index(self._network.running)

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes."""
        self._shapes = tuple(array.shape for array in inputs.values())
        return self._run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run the subnet in memory once, on zeros, so that its first inference is not slower than others.

        Args:
            shapes: Shapes of the inputs; single examples by default.

        Raises:
            ValueError: Its inputs or outputs differ from the manifest.
        """
        outputs, _ = self._network(zeros(self.manifest.inputs, shapes))
        if missing := {info.name for info in self.manifest.outputs} - outputs.keys():
            raise ValueError(f"they have no output {min(missing)}, which the manifest has")

    def _run(self, inputs: Mapping[str, Array], wanted: int) -> tuple[dict[str, Array], int]:
        now = self._clock()
        if wanted != self._wanted or now >= self._retry_at:
            self._load(wanted, now)
        elif now >= self._stitch_at:
            self._stitch(now)
        outputs, blocks = self._network(inputs)
        if blocks is not self._blocks:  # full comparison only after a switch, because this is timed
            self._blocks, self._number = blocks, self._subnets.index(blocks)
        return outputs, self._number

    def _stitch(self, now: float) -> None:
        try:
            begun = self._network.stitch(zeros(self.manifest.inputs, self._shapes))
        except RuntimeError:  # no thread can be started
            begun = False
        self._stitch_at = math.inf if begun else now + SETTLED_SECONDS

    def _load(self, wanted: int, now: float) -> None:
        self._wanted, self._retry_at, self._stitch_at = wanted, math.inf, now + SETTLED_SECONDS
        try:
            loading = self._network.switch(self._subnets[wanted])
        except RuntimeError as error:  # no thread can be started
            self._retry_later(wanted, error)
        else:
            loading.add_done_callback(partial(self._loaded, wanted))

    def _loaded(self, number: int, loading: Future[None]) -> None:
        if (error := loading.exception()) is not None:
            self._retry_later(number, error)

    def _retry_later(self, number: int, error: BaseException) -> None:
        logger.warning("%s cannot be loaded, so the current one keeps running: %s", _id(number), error)
        if number == self._wanted:
            self._retry_at = self._clock() + RETRY_SECONDS


def chosen_blocks(option: Option) -> ChosenBlocks:
    """Return the blocks of a subnet, and their execution."""
    return ChosenBlocks(files=option.blocks, execution=option.engine.execution)


def open_subnets(
    package: Package, options: PackageOptions, state: Path, wanted: int, threads: int
) -> PagedSubnets:
    """Open the subnets of a package, with the requested one in memory.

    If that cannot be loaded, the default one is, and the first inference tries again.

    Args:
        package: The package's version.
        options: The options of this version; all of them subnets.
        state: The state directory of the package.
        wanted: Index of the option to load first.
        threads: Number of threads of LiteRT.

    Raises:
        MistifyError: CORRUPT_PACKAGE, naming the file that cannot be used.
    """
    subnets = [chosen_blocks(option) for option in options.options]
    try:
        loaded = PagedSubnets(
            package.manifest,
            subnets,
            _network(Blocks.of(package, state), subnets, options.default, wanted, threads),
            threads,
        )
        loaded.warm_up()
    except (ValueError, RuntimeError) as error:
        message = f"the blocks in {package.directory / BLOCKS} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    return loaded


def _network(
    blocks: Blocks, subnets: Sequence[ChosenBlocks], default: int, wanted: int, threads: int
) -> PagedNetwork:
    try:
        return PagedNetwork(blocks, subnets[wanted], threads)
    except MistifyError as error:
        if wanted == default:
            raise
        logger.warning("%s cannot be loaded, %s runs at first: %s", _id(wanted), _id(default), error)
        return PagedNetwork(blocks, subnets[default], threads)


def _id(number: int) -> str:
    return option_id(OptionKind.SUBNET, number)

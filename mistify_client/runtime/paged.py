"""Options of which one is in memory while another is loaded: the subnets or the slices of a package."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BLOCKS
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify_client.assembly.chaining import Choice, ChosenBlocks
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import WEIGHTS
from mistify_client.assembly.paged_engines import EngineFiles, PagedEngines
from mistify_client.assembly.paged_slices import PagedSlices, SliceFiles
from mistify_client.assembly.pager import Pager
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Ran, Run, Shapes, zeros
from mistify_client.runtime.options import Option, PackageOptions
from mistify_client.runtime.versions import shipped_package

#: Seconds until a failed load is retried: the cause may have gone.
RETRY_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class PagedOptions(Generic[Choice]):
    """The options of a package, for one thread at a time.

    The chosen option runs once it is in memory. Until then, and if loading fails, the previous one runs;
    loading is retried after `RETRY_SECONDS`. An option that has run for a while is improved in the
    background: the blocks of a subnet are stitched.

    Args:
        choices: The id of each option, in order -> its network.
        network: Runs one of these networks.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    def __init__(
        self,
        manifest: Manifest,
        choices: Mapping[str, Choice],
        network: Pager[Choice],
        threads: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.manifest = manifest
        self.threads = threads
        self._ids, self._choices = tuple(choices), tuple(choices.values())
        self._network = network
        self._clock = clock
        self._ran = network.running
        self._number = self._wanted = self._choices.index(self._ran)
        self._retry_at = math.inf
        self._settled_at = clock() + network.settling_seconds(self._ran)
        self._shapes: Shapes | None = None

    @property
    def shapes(self) -> Shapes | None:
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""
        return self._shapes

    @property
    def is_whole(self) -> bool:
        """True if the current option runs as one network, rather than as several blocks."""
        return self._network.is_whole

    def running(self, wanted: int) -> int:
        """Return the index of the option in memory, whichever is requested."""
        return self._choices.index(self._network.running)

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes."""
        self._shapes = tuple(array.shape for array in inputs.values())
        return self._run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run the option in memory once, on zeros, so that its first inference is not slower than others.

        Args:
            shapes: Shapes of the inputs; single examples by default.

        Raises:
            ValueError: Its inputs or outputs differ from the manifest.
        """
        outputs, _ = self._network(zeros(self.manifest.inputs, shapes))
        if missing := {info.name for info in self.manifest.outputs} - outputs.keys():
            raise ValueError(f"they have no output {min(missing)}, which the manifest has")

    def _run(self, inputs: Mapping[str, Array], wanted: int) -> Ran:
        now = self._clock()
        if wanted != self._wanted or now >= self._retry_at:
            self._load(wanted, now)
        elif now >= self._settled_at:
            self._improve(now)
        outputs, ran = self._network(inputs)
        if ran is not self._ran:  # full comparison only after a switch, because this is timed
            self._ran, self._number = ran, self._choices.index(ran)
        return Ran(outputs, self._number)

    def _improve(self, now: float) -> None:
        try:
            begun = self._network.improve(zeros(self.manifest.inputs, self._shapes))
        except RuntimeError:  # no thread can be started
            begun = False
        self._settled_at = math.inf if begun else self._settling_at(self._wanted, now)

    def _settling_at(self, wanted: int, now: float) -> float:
        return now + self._network.settling_seconds(self._choices[wanted])

    def _load(self, wanted: int, now: float) -> None:
        self._wanted, self._retry_at, self._settled_at = wanted, math.inf, self._settling_at(wanted, now)
        try:
            loading = self._network.switch(self._choices[wanted])
        except RuntimeError as error:  # no thread can be started
            self._retry_later(wanted, error)
        else:
            loading.add_done_callback(partial(self._loaded, wanted))

    def _loaded(self, number: int, loading: Future[None]) -> None:
        if (error := loading.exception()) is not None:
            self._retry_later(number, error)

    def _retry_later(self, number: int, error: BaseException) -> None:
        logger.warning("%s cannot be loaded, so the current one keeps running: %s", self._ids[number], error)
        if number == self._wanted:
            self._retry_at = self._clock() + RETRY_SECONDS


def chosen_blocks(option: Option) -> ChosenBlocks:
    """Return the blocks of a subnet, and how to run them."""
    engine = option.engine
    return ChosenBlocks(files=option.blocks, execution=engine.execution, mapped_weights=engine.mapped_weights)


def open_paged(
    package: Package, options: PackageOptions, state: Path, wanted: int, threads: int | None
) -> PagedOptions[Any]:
    """Open the options of a package, with the requested one in memory.

    If that cannot be loaded, the default one is, and the first inference tries again.

    Args:
        package: The package's version.
        options: The options of this version, which are paged.
        state: The state directory of the package.
        wanted: Index of the option to load first.
        threads: Number of threads of LiteRT; None for those of the options.

    Raises:
        MistifyError: CORRUPT_PACKAGE, naming the file that cannot be used.
    """
    try:
        loaded = _open_options(package, options, state, wanted, threads)
        loaded.warm_up()
    except (ValueError, RuntimeError) as error:
        part = NETWORK if options.pool is None else BLOCKS
        message = f"the options of {package.directory / part} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    return loaded


def _open_options(
    package: Package, options: PackageOptions, state: Path, wanted: int, threads: int | None
) -> PagedOptions[Any]:
    if options.engines is not None:
        return _open_engines(package, options, state, wanted, threads)
    open_options = _open_subnets if options.ladder is None else _open_slices
    return open_options(package, options, state, wanted, threads or options.threads)


def _open_engines(
    package: Package, options: PackageOptions, state: Path, wanted: int, threads: int | None
) -> PagedOptions[Engine]:
    files = EngineFiles.of(package, state / WEIGHTS)
    choices = {option.id: option.engine for option in options.options}
    network = _opened(options, wanted, lambda option: PagedEngines(files, choices[option], threads))
    return PagedOptions(package.manifest, choices, network, threads or options.threads)


def _open_subnets(
    package: Package, options: PackageOptions, state: Path, wanted: int, threads: int
) -> PagedOptions[ChosenBlocks]:
    blocks = Blocks.of(package, state)
    choices = {option.id: chosen_blocks(option) for option in options.options}
    network = _opened(options, wanted, lambda option: PagedNetwork(blocks, choices[option], threads))
    return PagedOptions(package.manifest, choices, network, threads)


def _open_slices(
    package: Package, options: PackageOptions, state: Path, wanted: int, threads: int
) -> PagedOptions[str]:
    keys = {rung.id: rung.key for rung in options.ladder.rungs} if options.ladder else {}
    files = SliceFiles(shipped_package(state), package, state, keys)
    network = _opened(options, wanted, lambda option: PagedSlices(files, option, threads))
    return PagedOptions(package.manifest, {option: option for option in options.ids}, network, threads)


def _opened(options: PackageOptions, wanted: int, load: Callable[[str], Pager[Choice]]) -> Pager[Choice]:
    """Return a network that runs the requested option; the default one if that cannot be loaded."""
    ids = options.ids
    try:
        return load(ids[wanted])
    except MistifyError as error:
        if wanted == options.default:
            raise
        message = "%s cannot be loaded, %s runs at first: %s"
        logger.warning(message, ids[wanted], ids[options.default], error)
        return load(ids[options.default])

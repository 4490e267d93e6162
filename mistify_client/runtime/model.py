"""A package as used by an app: load it, call it with NumPy arrays, switch between options (paper 6)."""

import logging
import math
import operator
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, overload

import numpy.typing as npt

from mistify.errors import ErrorCode, MistifyError
from mistify.files.places import cache_directory
from mistify.machine import MOST_THREADS
from mistify.package.exits import EXIT_STAGES
from mistify.package.manifest import NETWORK, Branch, Manifest, TensorInfo
from mistify.package.opened import Package
from mistify.package.verification import verify
from mistify_client.runtime.exits import with_exits
from mistify_client.runtime.images import prepared_input
from mistify_client.runtime.inputs import Array, Given
from mistify_client.runtime.interpreter import open_network
from mistify_client.runtime.loaded import LoadedPackage, Runnable, recorded
from mistify_client.runtime.options import Option, PackageOptions, options_of
from mistify_client.runtime.paged import RETRY_SECONDS, open_paged
from mistify_client.runtime.served_task import ServedTask, TaskLike
from mistify_client.runtime.statistics import Statistics
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, in_place_of_current, read_consistently, state_directory

logger = logging.getLogger(__name__)


class PortedModel:
    """A ported network: call it with NumPy arrays, by position, by the names of its inputs or as a dict.

    Any batch size of at least 1 is allowed; all inputs of a call share it. A size other than the last call's
    requires an allocation, a few microseconds per operator. Arrays are converted if the network's dtype
    represents their values exactly (uint8 to float32); numbers in lists become floats, or integers if all are
    integers. An integer network also takes and returns values, converted with the scales in its manifest, and
    takes int8 arrays unchanged. A single output is returned as an array, several as a dict by name. The model
    may be called from several threads; calls run one at a time.

    A monitor on the same device may switch to another of the `options`, or make another version of the
    package current. A version, a slice, or blocks of a subnet that are not in memory are loaded in the
    background and used between two inferences. If loading fails, it is retried at an inference after
    `RETRY_SECONDS`.

    Args:
        package: The directory of the shipped package.
        loaded: The version that runs at first.
        threads: Number of threads of LiteRT; None for the number with which each version was measured.
        check: Reject inputs with infinity or NaN.
        task: The task that every version has to serve; None for any.
        clock: Returns seconds.
    """

    def __init__(
        self,
        package: Path,
        switchboard: Switchboard,
        loaded: LoadedPackage,
        *,
        threads: int | None = None,
        check: bool = False,
        task: ServedTask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._package = package
        self._check = check
        self._settings = _LoadSettings(threads, task)
        self._switchboard = switchboard
        self._loaded = loaded
        self._clock = clock
        self._noticed, self._retry_at = loaded.generation, math.inf
        self._noticing, self._loading = threading.Lock(), threading.Lock()
        self._last = threading.local()

    @property
    def manifest(self) -> Manifest:
        """The manifest of the current version."""
        return self._loaded.manifest

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Name, dtype and shape of every input, in order; -1 is the batch."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Name, dtype and shape of every output, in order."""
        return self.manifest.outputs

    @property
    def labels(self) -> tuple[str, ...] | dict[str, tuple[str, ...]] | None:
        """The names of the classes in order, as listed in the package; None if it lists none.

        If several outputs have names, a dict by output. An output with one value has the names of no and
        yes.
        """
        labels = self.manifest.labels
        return dict(labels) if len(labels) > 1 else next(iter(labels.values()), None)

    def prepare(self, image: Array, name: str | None = None) -> Array:
        """Prepare an image as an input, as declared in the package.

        Preparation inside the network, such as Keras's `Rescaling`, is not repeated.

        Args:
            image: RGB, uint8 [height, width, 3].
            name: Name of the input; optional if only one takes images.

        Returns:
            An array [1, ...] that the model accepts unchanged.

        Raises:
            MistifyError: NOT_FOUND, the package declares no preparation; INVALID_DATASET, the image is
                invalid.
        """
        return prepared_input(self.manifest, image, name)

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches, the cheapest first; empty if the package has a single network."""
        return self.manifest.branches

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that the package can run; they do not change while a version runs.

        These are its branches, the cheapest first, and its exits; or the best subnets of its blocks found on
        this device, the fastest first; or its only network, and the slices for its task that a monitor has
        offered.
        """
        return self._loaded.options.options

    @property
    def wanted(self) -> str:
        """The id of the most recently chosen option."""
        return self._loaded.wanted(self._switchboard).id

    @property
    def running(self) -> str:
        """The id of the current option, which differs from `wanted` while that one is being loaded."""
        return self._loaded.running(self._switchboard).id

    def switch(self, option: str) -> None:
        """Run another option, in every process that uses the package.

        Takes no longer than writing a number. All branches and exits are in memory, so they run from the next
        inference. The blocks of a subnet are loaded in the background, starting with the next inference; so
        is a slice, which is cut if it has not been.

        Args:
            option: Its id, such as "branch-0".

        Raises:
            MistifyError: NOT_FOUND, the package has no such option.
        """
        loaded = self._loaded
        self._switchboard.switch_in(loaded.generation, loaded.options.place_of(option))

    @property
    def answered(self) -> tuple[int, ...]:
        """The stage that answered each row of the last call of this thread; empty unless it ran exits.

        Stages are numbered from 0; the last one is the end of the network.
        """
        stages: tuple[int, ...] = getattr(self._last, "stages", ())
        return stages

    def statistics(self, seconds: float = 10.0) -> Statistics:
        """Return statistics on this model's inferences of the last seconds, excluding waiting times."""
        return self._loaded.statistics(seconds)

    def __call__(self, /, *arrays: Given, **named: npt.ArrayLike) -> Array | dict[str, Array]:
        """Run the network.

        Args:
            arrays: The first inputs [batch, ...], in order; or a dict of all inputs by name.
            named: The other inputs [batch, ...], by name.

        Returns:
            The output [batch, ...]; for several outputs a dict by name.

        Raises:
            MistifyError: INVALID_DATASET, naming every input that does not fit; or there is not enough memory
                for so many examples at once.
        """
        if self._switchboard.generation != self._loaded.generation:
            self._check_for_new_version()
        outputs, _, self._last.stages = self._loaded.run(arrays, named, self._switchboard, finite=self._check)
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def _check_for_new_version(self) -> None:
        """Start to load a new current version: once, and again some time after a failure."""
        with self._noticing:
            generation = self._switchboard.generation
            if generation != self._noticed or self._clock() >= self._retry_at:
                self._noticed, self._retry_at = generation, math.inf
                loading = threading.Thread(
                    target=self._load_new_version, args=[generation], name="mistify-version"
                )
                try:
                    loading.start()
                except Exception:
                    self._keep_current_version()

    def _keep_current_version(self) -> None:
        """Keep the current version for now; called while an exception is handled."""
        self._retry_at = self._clock() + RETRY_SECONDS
        logger.warning(
            "%s keeps its current version: the new one cannot be loaded", self._package, exc_info=True
        )

    def _load_new_version(self, generation: int) -> None:
        """Load the new current version and switch to it; if that fails, nothing changes."""
        with self._loading:
            if generation != self._noticed:
                return  # an even newer one is being loaded
            try:
                state = state_directory(self._package)
                opened, generation = _open_current(self._package, state, self._switchboard, self._settings)
                opened.network.warm_up(self._loaded.network.shapes)
                self._loaded = recorded(*opened, state, generation)
            except Exception:
                self._keep_current_version()


@overload
def load(
    package: str | os.PathLike[str],
    *,
    threads: int | None = None,
    check: bool = False,
    task: TaskLike | None = None,
) -> PortedModel: ...


@overload
def load(
    *,
    server: str,
    job: str,
    goal: str,
    token: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    check: bool = False,
    task: TaskLike | None = None,
) -> PortedModel: ...


def load(
    package: str | os.PathLike[str] | None = None,
    *,
    server: str | None = None,
    job: str | None = None,
    goal: str | None = None,
    token: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    check: bool = False,
    task: TaskLike | None = None,
) -> PortedModel:
    """Load a package from a directory, or the package of a job's goal from a server.

    A previously downloaded package is reused, even without a connection. Only `mistify adapt` downloads its
    blocks, if it has any.

    Args:
        package: The package's directory.
        server: `host:port` of the server, instead of `package`.
        job: The job's id on the server.
        goal: The goal's id in the job.
        token: The server's access token.
        cache: The directory for downloads; `~/.cache/mistify` (or below `$XDG_CACHE_HOME`) by default.
        threads: Number of threads of LiteRT; by default, the number with which the package was measured, to
            which its latencies refer.
        check: Reject inputs with infinity or NaN, for which LiteRT may return ordinary-looking outputs.
            Requires a pass over the inputs.
        task: The task that the package has to serve, such as `["exactly:2", "odd"]` or `{"classes": ["cat",
            "dog"]}`. Versions for another task, which `mistify customize` may install, are then not used. By
            default, any task is accepted.

    Raises:
        MistifyError: NOT_FOUND (no package, or it serves another task), CORRUPT_PACKAGE (a file does not
            match its digest), INVALID_CONFIG (there is no such task), UNAVAILABLE.
        ValueError: `threads` is below 1 or above 1024.
    """
    if threads is not None:
        threads = operator.index(threads)
        if not 1 <= threads <= MOST_THREADS:
            raise ValueError(f"threads is {threads}: give 1 to {MOST_THREADS}, or leave it out")
    if package is not None and server is None and job is None and goal is None:
        return _open(Path(package), threads, check, task)
    if package is None and server is not None and job is not None and goal is not None:
        directory = Path(cache or cache_directory()) / job / goal
        return _open(downloaded(directory, server, job, goal, token), threads, check, task)
    raise TypeError("load() takes either a package's directory or all of server, job and goal")


def downloaded(directory: Path, server: str, job: str, goal: str, token: str | None) -> Path:
    """Return the directory of a package; download or repair it if necessary and the server is reachable.

    Args:
        directory: The present or future directory of the package.
        server: The server's address.
        job: The job of the package on this server.
        goal: The package's goal in the job.
        token: An access token for the server.

    Raises:
        MistifyError: The package can be neither used nor downloaded.
    """
    from mistify_client.rpc.porting import PortingClient  # noqa: PLC0415 - gRPC, only for downloads
    from mistify_client.rpc.retry import FEW_ATTEMPTS, Backoff  # noqa: PLC0415

    try:
        verify(directory)
    except MistifyError:
        try:
            with PortingClient(server, token, backoff=Backoff(attempts=FEW_ATTEMPTS)) as client:
                client.fetch_without_blocks(job, goal, directory)
        except MistifyError as error:
            if not _can_start(directory):
                raise
            logger.warning("blocks of %s are damaged, and cannot be downloaded again: %s", directory, error)
    return directory


class _LoadSettings(NamedTuple):
    """The settings with which every version of a package is loaded.

    Attributes:
        threads: Number of threads of LiteRT; None for the number that the version was measured with.
        task: The task that each version has to serve; None for any.
    """

    threads: int | None
    task: ServedTask | None


class _Opened(NamedTuple):
    """A loaded version of a package."""

    network: Runnable
    options: PackageOptions


def _open(package: Path, threads: int | None, check: bool, task: TaskLike | None) -> PortedModel:
    package = package.absolute()  # the app may change its working directory
    shipped = Package.open(package)  # creates no state directory next to something that is not a package
    settings = _LoadSettings(threads, None if task is None else ServedTask.of(shipped, task))
    state = state_directory(package)
    switchboard = _switchboard(state)
    if (other := in_place_of_current(state)) is not None:
        logger.warning(
            "%s is used as it was shipped: %s is not a link to a version; remove it", package, other
        )
    try:
        opened, generation = _open_current(package, state, switchboard, settings, shipped)
    except MistifyError as error:
        if current(package) == package:
            raise
        # Logged as text: a handler that keeps the error would keep the network alive through its traceback.
        message = "%s is used as it was shipped, because its current version cannot be loaded: %s"
        logger.warning(message, package, str(error))
        generation = switchboard.generation_before  # so that the current version is retried
        opened = _opened(shipped, state, settings, switchboard.option_in(generation))
    loaded = recorded(*opened, state, generation)
    return PortedModel(package, switchboard, loaded, threads=threads, check=check, task=settings.task)


def _open_current(
    package: Path,
    state: Path,
    switchboard: Switchboard,
    settings: _LoadSettings,
    shipped: Package | None = None,
) -> tuple[_Opened, int]:
    """Return the current version of a package, and its generation."""

    def opened(version: Package, generation: int) -> _Opened:
        return _opened(version, state, settings, switchboard.option_in(generation))

    return read_consistently(package, state, switchboard, opened, shipped)


def _opened(package: Package, state: Path, settings: _LoadSettings, option: int) -> _Opened:
    """Load a version of a package, with the option selected by the switchboard in memory."""
    if settings.task is not None:
        settings.task.require_in(package.manifest)
    if NETWORK not in package.manifest.files:
        message = f"{package.directory / NETWORK} cannot be used: the manifest does not list it"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message)
    options = options_of(package, state)
    chosen = options.chosen(option)
    # The files that are used are read, and verified, later.
    used = options.options[chosen].blocks or (NETWORK, *((EXIT_STAGES,) if options.exits else ()))
    package.verify(with_blocks=False, skip=used)
    threads = settings.threads or options.threads
    if options.paged:
        return _Opened(open_paged(package, options, state, chosen, threads), options)
    network = open_network(package, threads)
    if options.exits is None:
        return _Opened(network, options)
    return _Opened(with_exits(package, network, options.exits), options)


def _switchboard(state: Path) -> Switchboard:
    try:
        return Switchboard.open(state)
    except (MistifyError, OSError) as error:
        logger.warning("no monitor can switch this model, because its state cannot be written: %s", error)
        return Switchboard()


def _can_start(directory: Path) -> bool:
    """Check whether a package is complete except for its blocks, each of which is verified before it runs."""
    try:
        verify(directory, with_blocks=False)
    except MistifyError:
        return False
    return True

"""A loaded package, as used by an app: call it with NumPy arrays, and switch between options (paper 6)."""

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn
from weakref import WeakSet

import numpy.typing as npt

from mistify.package.manifest import Branch, Manifest, TensorInfo
from mistify_client.lending.status import Helped, LendingStatus
from mistify_client.runtime.inputs import Argument, Array
from mistify_client.runtime.loaded import LoadedPackage, Runnable, recorded
from mistify_client.runtime.options import Option
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.statistics import Statistics
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.version_loading import LoadSettings, load_current, load_current_or_shipped
from mistify_client.runtime.versions import state_directory

#: The models of this process.
_MODELS: Final[WeakSet["PortedModel"]] = WeakSet()

#: Networks of the process that this one was forked from. They are kept: to close them, for example gRPC's
#: connections to helpers, would wait forever for threads that exist only there.
_INHERITED: Final[list[Runnable]] = []

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

    A forked process loads the package again when it first uses the model, because threads and locks do not
    survive a fork, and has statistics of its own. Helpers are not asked there.

    Args:
        package: The directory of the shipped package.
        loaded: The version that runs at first.
        settings: The settings with which every version is loaded.
        check: Reject inputs with infinity or NaN.
        clock: Returns seconds.
    """

    def __init__(
        self,
        package: Path,
        switchboard: Switchboard,
        loaded: LoadedPackage,
        settings: LoadSettings = LoadSettings(),  # noqa: B008 (immutable)
        *,
        check: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._package = package
        self._check = check
        self._settings = settings
        self._switchboard = switchboard
        self._clock = clock
        self._begin(loaded)
        _MODELS.add(self)

    def _begin(self, loaded: LoadedPackage | None) -> None:
        """Run a version; None for the current one, which is loaded when it is first used."""
        self._present = loaded
        self._noticed, self._retry_at = -1 if loaded is None else loaded.generation, math.inf
        self._noticing, self._loading = threading.Lock(), threading.Lock()
        self._last = threading.local()

    def __repr__(self) -> str:
        """Return the class and the package's directory."""
        return f"PortedModel({str(self._package)!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: the network, locks and statistics belong to this process."""
        hint = f"call mistify_client.load({str(self._package)!r}) there instead"
        raise TypeError(f"a model cannot be copied or sent to another process; {hint}")

    @property
    def _loaded(self) -> LoadedPackage:
        return self._present or self._loaded_again()

    def _loaded_again(self) -> LoadedPackage:
        """Load the current version in a forked process, unless another thread has just done so."""
        with self._loading:
            if self._present is None:
                if self._settings.lending is not None:  # gRPC cannot be used after a fork
                    logger.warning("no helper is asked in a forked process: load %s there", self._package)
                    self._settings = self._settings._replace(lending=None)
                state = state_directory(self._package)
                opened, generation = load_current_or_shipped(
                    self._package, state, self._switchboard, self._settings
                )
                self._noticed, self._present = generation, recorded(opened, state, generation)
            return self._present

    def after_fork(self) -> None:
        """Give up what depends on threads and locks of the process that this one was forked from."""
        if self._present is not None:
            _INHERITED.append(self._present.network)
        self._begin(None)

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

    def prepare(self, raw: Array | str, name: str | None = None) -> Array:
        """Prepare an image or a text as an input, as described in the package.

        Preparation inside the network, such as Keras's `Rescaling`, is not repeated.

        Args:
            raw: An image, RGB, uint8 [height, width, 3]; or a text.
            name: Name of the input; optional if only one takes images, or texts.

        Returns:
            An array [1, ...] that the model accepts unchanged.

        Raises:
            MistifyError: NOT_FOUND, the package describes no such preparation; INVALID_DATASET, the image is
                invalid; CORRUPT_PACKAGE, its vocabulary is missing or damaged.
        """
        return self._loaded.preparation.prepared(raw, name)

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
        """Run another option, in every process that uses the package and runs the same version.

        Takes no longer than writing a number. All branches and exits are in memory, so they run from the next
        inference. The blocks of a subnet are loaded in the background, starting with the next inference; so
        is a slice, which is cut if it has not been.

        Args:
            option: Its id, such as "branch-0".

        Raises:
            MistifyError: NOT_FOUND, the package has no such option.
        """
        self._loaded.switch(self._switchboard, option)

    @property
    def answered(self) -> tuple[int, ...]:
        """The stage that answered each row of the last call of this thread; empty unless it ran exits.

        Stages are numbered from 0; the last one is the end of the network.
        """
        stages: tuple[int, ...] = getattr(self._last, "stages", ())
        return stages

    @property
    def lending(self) -> LendingStatus | None:
        """Where inferences run, and why; None if no helper may help (see `load`)."""
        network = self._loaded.network
        return network.lending if isinstance(network, Helped) else None

    def statistics(self, seconds: float = 10.0) -> Statistics:
        """Return statistics on this model's inferences of the last seconds, excluding waiting times."""
        return self._loaded.statistics(seconds)

    def __call__(self, /, *arrays: Argument, **named: npt.ArrayLike) -> Array | dict[str, Array]:
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
        ran = self._loaded.run(arrays, named, self._switchboard, finite=self._check)
        self._last.stages, outputs = ran.stages, ran.outputs
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
                opened, generation = load_current(self._package, state, self._switchboard, self._settings)
                opened.network.warm_up(self._loaded.network.shapes)
                self._present = recorded(opened, state, generation)
            except Exception:
                self._keep_current_version()


def _after_fork() -> None:
    for model in list(_MODELS):
        model.after_fork()


os.register_at_fork(after_in_child=_after_fork)

"""A loaded version of a package, which runs inferences and records their latencies."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy.typing as npt

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.wording import counted
from mistify_client.runtime.inputs import Argument, Array, bind
from mistify_client.runtime.interpreter import Ran, Run, Shapes
from mistify_client.runtime.options import Option, PackageOptions
from mistify_client.runtime.preparing import InputPreparation
from mistify_client.runtime.samples import InputSamples
from mistify_client.runtime.statistics import Recorder, Statistics
from mistify_client.runtime.switchboard import DEFAULT_OPTION, Switchboard

logger = logging.getLogger(__name__)


class Runnable(Protocol):
    """A network that runs the options of a package, for one thread at a time.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    manifest: Manifest
    threads: int

    @property
    def shapes(self) -> Shapes | None:
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""

    def running(self, wanted: int) -> int:
        """Return the index of the option that runs for a requested one, which may still have to be loaded."""

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes, in allocated memory."""

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run all networks in memory once, so that their first inference is not slower than others.

        Args:
            shapes: Shapes of the inputs; single examples by default.
        """


class LoadedVersion(NamedTuple):
    """A loaded version of a package."""

    network: Runnable
    options: PackageOptions
    package: Package


class LoadedPackage:
    """A loaded package. Several threads may call it; calls run one at a time.

    Attributes:
        network: Runs the options.
        preparation: Prepares images and texts as inputs.
        recorder: Records the inferences.
        generation: The generation of the version (`Switchboard.generation`).
    """

    def __init__(
        self,
        version: LoadedVersion,
        recorder: Recorder,
        generation: int,
        samples: InputSamples,
    ) -> None:
        self.network, self.options = version.network, version.options
        self.manifest = self.network.manifest
        self.preparation = InputPreparation(version.package)
        self.recorder = recorder
        self.generation = generation
        self._samples = samples
        self._option = DEFAULT_OPTION
        self._lock = threading.Lock()

    def run(
        self,
        arrays: Sequence[Argument],
        named: Mapping[str, npt.ArrayLike],
        switchboard: Switchboard,
        *,
        finite: bool = False,
    ) -> Ran:
        """Run the option selected by the switchboard; while it is being loaded, the previous one.

        Args:
            arrays: The first inputs [batch, ...], in order; or a dict of all inputs by name.
            named: The other inputs [batch, ...], by name.
            finite: Reject inputs that are not finite.

        Returns:
            The outputs as values, the option and the stages.

        Raises:
            MistifyError: INVALID_DATASET, naming every input that does not fit; or the network rejects them.
        """
        called = time.monotonic()
        values = bind(self.manifest.inputs, arrays, named, finite=finite)
        with self._lock:
            try:
                ran = self._recorded(values, self._wanted(switchboard), called)
            except (MemoryError, RuntimeError) as error:
                raise _refused(values) from error
            self._samples.offer(values)
        outputs = {info.name: info.dequantized(ran.outputs[info.name]) for info in self.manifest.outputs}
        return ran._replace(outputs=outputs)

    def _recorded(self, values: Mapping[str, Array], wanted: int, called: float) -> Ran:
        run = self.network.prepared(values)
        computing, started = time.thread_time(), time.monotonic()
        ran = run(values, wanted)
        ended, computed = time.monotonic(), time.thread_time()
        self.recorder.record(
            ended,
            1e3 * (ended - started),
            1e3 * (computed - computing),
            1e3 * (started - called),
            option=ran.option,
            stage=max(ran.stages, default=0),
            batch=_examples(values),
            helped=ran.helped,
        )
        return ran

    def wanted(self, switchboard: Switchboard) -> Option:
        """Return the option selected by a switchboard; the default one if there is no such option."""
        return self.options.options[self._wanted(switchboard)]

    def running(self, switchboard: Switchboard) -> Option:
        """Return the option that runs, while the requested one may still be loading."""
        return self.options.options[self.network.running(self._wanted(switchboard))]

    def statistics(self, seconds: float) -> Statistics:
        """Return statistics on the inferences of the last seconds."""
        return self.recorder.observed().statistics(self.options.ids, seconds)

    def switch(self, switchboard: Switchboard, option: str) -> None:
        """Select an option in all processes; only in this one if the switchboard keeps none of the version.

        Args:
            option: Its id.

        Raises:
            MistifyError: NOT_FOUND, there is no such option.
        """
        self._option = self.options.place_of(option)
        if switchboard.holds(self.generation):
            switchboard.switch_in(self.generation, self._option)

    def _wanted(self, switchboard: Switchboard) -> int:
        """Return the index of the selected option; the last one if later versions took its place."""
        if switchboard.holds(self.generation):
            self._option = switchboard.option_in(self.generation)
        return self.options.chosen(self._option)


def _examples(values: Mapping[str, Array]) -> int:
    return len(next(iter(values.values())))


def _refused(values: Mapping[str, Array]) -> MistifyError:
    """Return the error for inputs that fit the manifest, but that LiteRT cannot run."""
    count = counted(_examples(values), "example")
    message = f"the network cannot run these {count}: there is not enough memory for so many at once, or a "
    message += "value is out of range, such as an index into a table; give fewer, or check their values"
    return MistifyError(ErrorCode.INVALID_DATASET, message)


def recorded(version: LoadedVersion, state: Path, generation: int) -> LoadedPackage:
    """Return a loaded package; a monitor can read its statistics if the state directory is writable.

    Args:
        state: The state directory of the package.
        generation: The generation of the version (`Switchboard.generation`).
    """
    network = version.network
    count = len(version.options.options)
    try:
        recorder = Recorder.open(state, count, generation, network.threads)
    except OSError as error:
        logger.warning(
            "no monitor can see this model until it is loaded again, because %s cannot be written: %s",
            state,
            error,
        )
        recorder = Recorder(count, generation, network.threads)
    samples = InputSamples(state, network.manifest.inputs)
    return LoadedPackage(version, recorder, generation, samples)

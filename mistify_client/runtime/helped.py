"""The options of a package, whose blocks may run on helpers."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.option_kinds import OptionKind
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.offloading import FASTEST_MS, LocalNetwork, OffloadingNetwork
from mistify_client.lending.opening import block_network, predicted_cuts
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.prediction import HelperFigures, NetworkCuts
from mistify_client.lending.reports import HelpedTimes, LendingReporter
from mistify_client.lending.segments import Segments, fastest_run, timed_segments
from mistify_client.lending.speed import LocalSpeed
from mistify_client.lending.status import NOT_CONNECTED, LendingStatus
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Ran, Run, Shapes, zeros
from mistify_client.runtime.loaded import LoadedVersion
from mistify_client.runtime.switchboard import Switchboard

#: The kinds of options whose networks consist of blocks.
_OF_BLOCKS = (OptionKind.BRANCH, OptionKind.SUBNET, OptionKind.ENGINE)


class _HelpedOption(NamedTuple):
    """An option that helpers may help with.

    Attributes:
        cuts: Its cuts, by the work of its blocks.
    """

    network: BlockNetwork
    cuts: NetworkCuts


class HelpedOptions:
    """The options of a package, for one thread at a time.

    An option that helpers can help with asks them while that is faster, unless the switchboard forbids it.

    Args:
        version: The version of the package, whose options run on this device.
        helped: Index of an option -> how helpers can help with it; the one in memory comes first.
        state: The state directory of the package, with its switchboard, and for reports to its monitor.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    def __init__(
        self, version: LoadedVersion, helped: Mapping[int, _HelpedOption], config: LendingConfig, state: Path
    ) -> None:
        self._local, self._options, package = version
        self.manifest: Manifest = package.manifest
        self.threads = self._local.threads
        self._helped = helped
        self._config = config
        self._reporter = LendingReporter(state)
        self._switchboard = _switchboard(state)
        self._counts: Counter[str] = Counter()
        self._figures: dict[str, HelperFigures] = {}
        self._number = -1
        self._current: OffloadingNetwork | None = None
        self._current_of(next(iter(helped)))

    @property
    def lending(self) -> LendingStatus | None:
        """The state of the lending; None while an option runs that helpers cannot help with."""
        return None if self._current is None else self._current.status

    @property
    def shapes(self) -> Shapes | None:
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""
        return self._local.shapes

    def running(self, wanted: int) -> int:
        """Return the index of the option in memory."""
        return self._local.running(wanted)

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes."""
        self._run_here = self._local.prepared(inputs)
        return self._run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run the option in memory once on this device, so that its first inference is not slower.

        Args:
            shapes: Shapes of the inputs; single examples by default.
        """
        self._local.warm_up(shapes)

    def _run(self, inputs: Mapping[str, Array], wanted: int) -> Ran:
        number = self._local.running(wanted)
        offloading = self._current_of(number) if number == wanted else None
        if offloading is None:
            return self._run_here(inputs, wanted)
        outputs = offloading(inputs, alone=self._switchboard.alone)
        self._reporter.offer(offloading.status, lambda: self._times(offloading))
        return Ran(outputs, number, helped=offloading.helped)

    def _current_of(self, number: int) -> OffloadingNetwork | None:
        """Return the network of the option that runs; None if helpers cannot help with it."""
        if number != self._number:
            # If the new one cannot be opened, this device runs the option alone.
            self._number, before, self._current = number, self._current, None
            ratio = 1.0
            if before is not None:
                ratio = before.speed.ratio
                before.close()
            self._current = self._opened(number, ratio) if number in self._helped else None
        return self._current

    def _opened(self, number: int, ratio: float) -> OffloadingNetwork:
        network, cuts = self._helped[number]
        shares = (*(share for share, _ in cuts.cuts), 1.0)
        segment_ms = [cuts.idle_ms * (after - before) for before, after in pairwise(shares)]
        return OffloadingNetwork(
            network,
            LocalNetwork(
                lambda inputs: self._run_here(inputs, number).outputs,
                Segments(lambda: timed_segments(network, self.threads)),
                LocalSpeed(cuts.idle_ms, segment_ms, ratio=ratio),
            ),
            self.manifest.quantization,
            self._config,
            self._counts,
        )

    def _times(self, offloading: OffloadingNetwork) -> HelpedTimes:
        """Return the predicted times of all options with helpers, and of the running one without."""
        problems = offloading.status.problems
        gone = {address for address, problem in problems.items() if problem not in ("", NOT_CONNECTED)}
        self._figures |= offloading.figures
        helpers = [figures for address, figures in self._figures.items() if address not in gone]
        ratio = offloading.speed.ratio
        times = {
            self._options.ids[number]: cuts.helped_ms(ratio, helpers)
            for number, (_, cuts) in self._helped.items()
            if cuts.idle_ms >= FASTEST_MS
        }
        return HelpedTimes(
            self._options.ids[self._number],
            offloading.speed.predicted_ms,
            {option: ms for option, ms in times.items() if ms is not None},
        )


def with_helpers(version: LoadedVersion, config: LendingConfig, state: Path, wanted: int) -> HelpedOptions:
    """Let helpers run blocks of a package's options.

    Args:
        version: The version of the package, whose options run on this device.
        state: The state directory of the package.
        wanted: Index of the option that is in memory, or of which the default one takes the place.

    Raises:
        MistifyError: NOT_FOUND, helpers cannot help with this package.
    """
    local, options, package = version
    number = local.running(wanted)
    networks = {
        place: block_network(package, option.blocks, rounding_loss=config.rounding_loss)
        for place, option in enumerate(options.options)
        if option.kind in _OF_BLOCKS
    }
    if number not in networks:
        message = f"helpers run only blocks, and {options.ids[number]} of {package.directory} has none"
        raise MistifyError(ErrorCode.NOT_FOUND, message)
    inputs = zeros(package.manifest.inputs)
    run = local.prepared(inputs)
    _, idle_ms = fastest_run(lambda tensors: run(tensors, number).outputs, inputs, local.threads)
    slower = idle_ms / options.options[number].costs.latency_ms
    helped = {
        place: _HelpedOption(
            network, predicted_cuts(network, slower * options.options[place].costs.latency_ms)
        )
        for place, network in networks.items()
    }
    first = {number: helped.pop(number), **helped}
    return HelpedOptions(version, first, config, state)


def _switchboard(state: Path) -> Switchboard:
    """Return the switchboard of a package; a private one if its state cannot be written."""
    try:
        return Switchboard.open(state)
    except (MistifyError, OSError):
        return Switchboard()

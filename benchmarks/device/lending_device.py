"""The device of the benchmark of lending.

`python -m benchmarks.device.lending_device PACKAGE HELPER TOKEN_FILE`

It reads orders from standard input as JSON, one a line: a way to run inferences and its seconds. It answers
with the milliseconds of each inference. The ways are `here` (the whole network on this device), `lending` (as
in an app), `static` (the best cut for an idle device and the measured link, which Neurosurgeon and DADS
choose), and the number of a segment from which on the helper runs every inference.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify_client.assembly.executions import Execution, open_network, part_that_runs
from mistify_client.lending.chains import Part
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.cuts import Cut, cuts_of
from mistify_client.lending.offloading import LocalNetwork, OffloadingNetwork
from mistify_client.lending.opening import block_network
from mistify_client.lending.placement import PlacedPart, Placement, Reachable
from mistify_client.lending.segments import Segments, fastest_run, timed_segments
from mistify_client.lending.speed import LocalSpeed
from mistify_client.lending.tensors import zeros_of

#: Inferences at the beginning of each order that do not count.
_FIRST: Final = 2

_MILLISECONDS: Final = 1e3


class FixedChooser:
    """Runs every inference at one cut, and on this device while the helper cannot be asked.

    Args:
        cut: None for this device alone.
        segments: Number of segments of the network.
    """

    def __init__(self, cut: Cut | None, segments: int) -> None:
        self._cut = cut
        self._segments = segments

    def choose(self, helpers: Mapping[str, Reachable], input_bytes: int) -> Placement:
        """Return the cut with the only helper."""
        for address, helper in helpers.items():
            if self._cut is not None:
                first, link = self._cut.segment, helper.link
                remote_ms = link.round_trip_ms + link.byte_ms * self._cut.size + helper.speed.overhead_ms
                remote_ms += sum(helper.speed.segment_ms[first:])
                here = PlacedPart(Part(None, 0, first), 0, 0.0)
                there = PlacedPart(Part(address, first, self._segments), self._cut.size, 2 * remote_ms)
                return Placement((here, there) if first else (there,), 0.0, 0.0)
        return Placement((), 0.0, 0.0)

    def observe(self, placement: Placement, milliseconds: float) -> None:
        """Ignore how long it took."""

    def correction(self, address: str) -> float:
        """Return 0: nothing has been learned."""
        return 0.0


class Sides:
    """The ways to run inferences: with a session each, so that none learns from the other's.

    An app and single cuts round tensors to bytes; the best cut for idle devices sends them as they are, as
    in the papers.
    """

    def __init__(self, directory: Path, helper: str, token_file: Path) -> None:
        package = Package.open(directory)
        config = LendingConfig(helpers=(helper,), token_file=token_file)
        unrounded = config.model_copy(update={"rounding_loss": 0.0})
        self._lending, self._single, self._static = (
            _offloading_network(package, each) for each in (config, config, unrounded)
        )
        self._cuts = cuts_of(self._single.network)
        inputs = zeros_of(self._single.network.inputs_of(0))
        rng = np.random.default_rng(0)
        self._inputs = {
            name: rng.integers(0, 256, each.shape).astype(each.dtype) for name, each in inputs.items()
        }

    def wait_for_helper(self) -> list[int]:
        """Wait until the helper can be asked, and return the segments before which the network may be cut."""
        for network in (self._lending, self._single, self._static):
            while not all(helper.is_available for helper in network.helpers.values()):
                time.sleep(0.05)
        return [cut.segment for cut in self._cuts]

    def run(self, way: str | int, seconds: float) -> list[float]:
        """Return the milliseconds of each inference."""
        network = self._network(way)
        times: list[float] = []
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends or len(times) <= _FIRST:
            started = time.perf_counter()
            network(self._inputs)
            times.append(_MILLISECONDS * (time.perf_counter() - started))
        return times[_FIRST:]

    def last(self) -> str:
        """Return where the last inference of an app ran, and why."""
        return self._lending.status.placement.reason

    def _network(self, way: str | int) -> OffloadingNetwork:
        if way == "lending":
            return self._lending
        if way == "static":
            network, cut = self._static, self._static_cut()
        else:
            network = self._single
            cut = next((each for each in self._cuts if each.segment == way), None)
        network.chooser = FixedChooser(cut, len(network.network.starts))
        return network

    def _static_cut(self) -> Cut | None:
        """Return the best cut if both devices were idle; in a chain it is the minimum cut as well."""
        (helper,) = self._static.helpers.values()
        if helper.speed is None:
            return None
        idle, own = helper.speed.idle_ms, self._static.speed.idle_ms
        times: dict[Cut | None, float] = {None: sum(own)}
        for cut in cuts_of(self._static.network):
            there = helper.link.round_trip_ms + helper.link.byte_ms * cut.size + sum(idle[cut.segment :])
            times[cut] = sum(own[: cut.segment]) + there
        return min(times, key=lambda cut: times[cut])


def _offloading_network(package: Package, config: LendingConfig) -> OffloadingNetwork:
    """Open the network of a package, and its segments."""
    network = block_network(package, rounding_loss=config.rounding_loss)
    interpreter = Execution.INTERPRETER
    whole = open_network(part_that_runs(package.read(NETWORK), interpreter), interpreter, 1)
    _, whole_ms = fastest_run(whole, zeros_of(network.inputs_of(0)), 1)
    loaded = timed_segments(network, 1)
    speed = LocalSpeed(whole_ms, loaded.idle_ms)
    local = LocalNetwork(whole, Segments(lambda: loaded, loaded), speed)
    return OffloadingNetwork(network, local, package.manifest.quantization, config)


def main(directory: Path, helper: str, token_file: Path) -> None:
    """Carry out the orders."""
    sides = Sides(directory, helper, token_file)
    print(json.dumps(sides.wait_for_helper()), flush=True)
    for line in sys.stdin:
        way, seconds = json.loads(line)
        print(json.dumps([sides.run(way, seconds), sides.last()]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))

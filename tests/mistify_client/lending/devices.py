"""A device that is slow, and helpers in processes of their own."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mistify.package.opened import Package
from mistify.package.rounding import rounded
from mistify_client.assembly.executions import Array, Run, Tensors
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.offloading import LocalNetwork, OffloadingNetwork
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.segments import LoadedSegments, Segments, load_segments
from mistify_client.lending.speed import LocalSpeed
from tests.mistify_client.lending.conftest import TOKEN
from tests.support.block_stores import ORIGINAL
from tests.support.servers import MISTIFY, killed_at_the_end
from tests.support.tokens import write_token

#: Seconds that each segment takes on the slow device, beside its own time.
SLOW = 0.02


class Device:
    """A device whose segments take long, and the same network on another one that is not slow.

    Args:
        rounded: Indices of the segments whose inputs are rounded when they are sent.
    """

    def __init__(self, package: Path, config: LendingConfig, rounded: frozenset[int] = frozenset()) -> None:
        opened = Package.open(package)
        assert opened.blocks is not None
        blocks = opened.blocks.network_of(ORIGINAL)
        network = BlockNetwork(package, opened.blocks, blocks, (0, 1, 2, 3), rounded)
        self._segments = load_segments(network, 1)
        (self._input,), (self._output,) = opened.blocks.inputs, opened.blocks.outputs
        slow = [self._slowed(segment) for segment in self._segments]
        whole = self._slowed(self._whole, len(slow))
        idle_ms = [1000 * SLOW] * len(slow)
        loaded = LoadedSegments(slow, idle_ms)
        speed = LocalSpeed(1000 * SLOW * len(slow), idle_ms)
        local = LocalNetwork(whole, Segments(lambda: loaded, loaded), speed)
        self.network = OffloadingNetwork(network, local, opened.manifest.quantization, config)
        self._random = np.random.default_rng(0)

    @property
    def counts(self) -> dict[str, int]:
        return {"offloaded": 0, "failed": 0, "local": 0, "checked": 0, **self.network.status.counts}

    @property
    def problem(self) -> str:
        (problem,) = self.network.status.problems.values()
        return problem

    def runs(self, examples: int = 1) -> bool:
        """Run an inference on new inputs; return whether the answer is right bit by bit."""
        values = self._random.uniform(size=(examples, 8, 8, 3))
        tensors = {self._input.name: self._input.quantized(values)}
        answer = self.network(tensors)[self._output.name]
        assert answer.flags.writeable  # an app may change what it gets, whoever computed it
        return answer.tobytes() == self._expected(tensors)[self._output.name].tobytes()

    def runs_until(self, kind: str, count: int) -> None:
        """Run inferences until some more are of a kind."""
        goal = self.counts[kind] + count
        while self.counts[kind] < goal:
            assert self.runs()

    def _expected(self, tensors: Tensors) -> Tensors:
        """Return the outputs with the tensors rounded that were sent in the last inference."""
        helped = [each.part for each in self.network.status.placement.parts if each.part.helper is not None]
        sent = {cut for part in helped for cut in (part.start, part.end)} & self.network.network.rounded
        for cut, segment in enumerate(self._segments):
            if cut in sent:
                tensors = {name: rounded(tensor) for name, tensor in tensors.items()}
            tensors = segment(tensors)
        return tensors

    def _whole(self, tensors: Tensors) -> dict[str, Array]:
        for segment in self._segments:
            tensors = segment(tensors)
        return dict(tensors)

    @staticmethod
    def _slowed(run: Run, times: int = 1) -> Run:
        def slow(tensors: Tensors) -> dict[str, Array]:
            time.sleep(times * SLOW)  # as on a device with other work
            return run(tensors)

        return slow


@contextmanager
def device(
    package: Path,
    *helpers: str,
    token: str | None = TOKEN,
    patience: float = 200,
    rounded: frozenset[int] = frozenset(),
) -> Iterator[Device]:
    token_file = None if token is None else write_token(package.with_name("token"), token)
    config = LendingConfig(helpers=helpers, token_file=token_file, patience=patience)
    made = Device(package, config, rounded)
    try:
        yield made
    finally:
        made.network.close()


@contextmanager
def helper_process(package: Path, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `mistify lend` without a token, and yield its address and process."""
    command = [MISTIFY, "lend", "--package", package, "--listen", listen]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with killed_at_the_end(process):
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process
        process.kill()
        process.wait()

"""A version of a package that is loaded: it runs inferences and records their latencies."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy.typing as npt

from mistify_client.runtime.inputs import Array, Given, bind
from mistify_client.runtime.interpreter import Network
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard

logger = logging.getLogger(__name__)


class LoadedPackage:
    """A package that is loaded. Several threads may call it; one at a time runs.

    Attributes:
        manifest: of the package.
        network: of the package.
        recorder: records its inferences.
        generation: of its version (`Switchboard.generation`).
    """

    def __init__(self, network: Network, recorder: Recorder, generation: int) -> None:
        self.manifest = network.manifest
        self.network = network
        self.recorder = recorder
        self.generation = generation
        self._lock = threading.Lock()

    def run(
        self, arrays: Sequence[Given], named: Mapping[str, npt.ArrayLike], switchboard: Switchboard
    ) -> dict[str, Array]:
        """Run the branch that the switchboard names when the inference begins.

        Args:
            arrays: the first inputs [batch, ...], in their order; or a dict of all inputs by name.
            named: the other inputs [batch, ...], by name.
            switchboard: of the package.

        Returns:
            The outputs [batch, ...] by name.

        Raises:
            MistifyError: INVALID_DATASET, naming every input that does not fit.
        """
        called = time.monotonic()
        values = bind(self.manifest.inputs, arrays, named)
        batch = len(next(iter(values.values())))
        with self._lock:
            branch = self.branch(switchboard)
            run = self.network.prepared(values)
            computing, started = time.thread_time(), time.monotonic()
            outputs = run(values, branch)
            ended, computed = time.monotonic(), time.thread_time()
            self.recorder.record(
                ended,
                1e3 * (ended - started),
                1e3 * (computed - computing),
                1e3 * (started - called),
                branch=branch,
                batch=batch,
            )
        return {info.name: info.dequantized(outputs[info.name]) for info in self.manifest.outputs}

    def branch(self, switchboard: Switchboard) -> int:
        """Return the branch that a switchboard names; the default one where there is no such branch."""
        branch = switchboard.branch_in(self.generation)
        return branch if 0 <= branch < len(self.manifest.branches) else self.manifest.default_branch


def recorded(network: Network, state: Path, generation: int) -> LoadedPackage:
    """Return a loaded package; a monitor can read its statistics if the state directory is writable.

    Args:
        network: of the package.
        state: the state directory of the package.
        generation: of the version (`Switchboard.generation`).
    """
    branches = len(network.manifest.branches) or 1
    try:
        recorder = Recorder.open(state, branches, generation, network.threads)
    except OSError as error:
        logger.warning(
            "no monitor sees what this model does until it is loaded again, %s has no place: %s", state, error
        )
        recorder = Recorder(branches, generation, network.threads)
    return LoadedPackage(network, recorder, generation)

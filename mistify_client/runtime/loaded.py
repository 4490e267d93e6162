"""A version of a package that is loaded: it runs inferences, and notes what they take."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy.typing as npt

from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.interpreter import Network
from mistify_client.runtime.statistics import Recorder
from mistify_client.runtime.switchboard import Switchboard

logger = logging.getLogger(__name__)


class LoadedPackage:
    """A package that is loaded. Several threads may call it, one at a time runs.

    Attributes:
        manifest: what the package says about itself.
        network: its network.
        recorder: what its inferences have taken.
        generation: of its version (`Switchboard.generation`).
    """

    def __init__(self, network: Network, recorder: Recorder, generation: int) -> None:
        self.manifest = network.manifest
        self.network = network
        self.recorder = recorder
        self.generation = generation
        self._lock = threading.Lock()

    def run(
        self, arrays: Sequence[npt.ArrayLike], named: Mapping[str, npt.ArrayLike], switchboard: Switchboard
    ) -> dict[str, Array]:
        """The outputs by name, of the branch that the switchboard says when the inference begins.

        Raises:
            MistifyError: INVALID_DATASET, naming every input that does not fit.
        """
        values = bind(self.manifest.inputs, arrays, named)
        batch = len(next(iter(values.values())))
        with self._lock:
            branch = self.branch(switchboard)
            started = time.monotonic()
            found = self.network(values, branch)
            ended = time.monotonic()
            self.recorder.record(ended, 1e3 * (ended - started), branch, batch)
        return {info.name: info.dequantized(found[info.name]) for info in self.manifest.outputs}

    def branch(self, switchboard: Switchboard) -> int:
        """The branch that a switchboard says; the default one where there is no such branch."""
        branch = switchboard.branch_in(self.generation)
        return branch if 0 <= branch < len(self.manifest.branches) else self.manifest.default_branch


def recorded(network: Network, state: Path, generation: int) -> LoadedPackage:
    """A loaded package, whose statistics others can read if the state directory can be written to."""
    branches = len(network.manifest.branches) or 1
    try:
        recorder = Recorder.open(state, branches, generation)
    except OSError as error:
        logger.warning(
            "no monitor sees what this model does until it is loaded again, %s has no place: %s", state, error
        )
        recorder = Recorder(branches, generation)
    return LoadedPackage(network, recorder, generation)

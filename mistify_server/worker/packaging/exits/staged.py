"""A network in stages in LiteRT: the answers of all its heads, and the latency up to each."""

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from executors.data.storage import Array, Rows
from mistify.package.exits import FEATURES, stage_signature
from mistify.package.training import OutputEncoding
from mistify_server.worker.packaging.measurement.isolated import latency_of
from mistify_server.worker.packaging.tflite.runner import BATCH, Arrays, Runner


class StagedNetwork:
    """The stages of a network with heads.

    Args:
        network: Content of `exits.tflite`.
        stages: Number of stages.
        output: Name of the output.
        kind: The form of its values, such as logits.

    Raises:
        LiteRtError: LiteRT cannot run a stage; raised by the constructor and every method.
    """

    def __init__(self, network: bytes, stages: int, output: str, kind: OutputEncoding) -> None:
        self._network = network
        self._output = output
        self._kind = kind
        self._keys = [stage_signature(stage) for stage in range(stages)]
        self._runners = [Runner(network, key) for key in self._keys]

    def probabilities(self, inputs: Arrays) -> list[Array]:
        """Return the probabilities of classes [examples, classes] at each stage, for many inputs."""
        rows = [Rows() for _ in self._runners]
        count = len(next(iter(inputs.values())))
        at_once = min(runner.examples_at_once(BATCH) for runner in self._runners)
        for start in range(0, count, at_once):
            tensors: Mapping[str, Array] = {
                name: array[start : start + at_once] for name, array in inputs.items()
            }
            for runner, stage in zip(self._runners, rows, strict=True):
                tensors = runner(tensors)
                stage.append(self._kind.predictions(tensors[self._output]))
                tensors = {name: tensor for name, tensor in tensors.items() if name == FEATURES}
        return [np.asarray(stage.array()) for stage in rows]

    def latencies_ms(self, threads: int) -> list[float]:
        """Return the milliseconds of an example that is answered at each stage."""
        own = [latency_of(self._network, threads, signature=key).median_ms for key in self._keys]
        return list(accumulate(own))

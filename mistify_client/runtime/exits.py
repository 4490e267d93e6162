"""A network with early exits in LiteRT: stages run until a head is confident (CrowdHMTware III-A1)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.litert import open_interpreter
from mistify.package.exits import EXIT_STAGES, FEATURES, ExitStore, stage_signature
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.wording import listed
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Network, Ran, Run, Shapes, zeros

#: Above every probability: all stages run.
_NEVER: Final = 2.0


class Stages:
    """The stages of a network, for one thread at a time.

    Args:
        content: Content of `exits.tflite`.
        store: Its description.
        threads: Number of threads of LiteRT.

    Raises:
        ValueError: The content is not a network, or lacks a stage.
    """

    def __init__(self, content: bytes, store: ExitStore, threads: int) -> None:
        interpreter = open_interpreter(content, threads)
        signatures = interpreter.get_signature_list()
        keys = [stage_signature(stage) for stage in range(len(store.stages))]
        for key in keys:
            expected = {store.output} if key == keys[-1] else {store.output, FEATURES}
            if key not in signatures or set(signatures[key]["outputs"]) != expected:
                raise ValueError(f"it has no signature {key} with the outputs {listed(sorted(expected))}")
        self._stages: Sequence[Callable[..., dict[str, Array]]] = [
            interpreter.get_signature_runner(key) for key in keys
        ]
        self._output = store.output
        self._kind = store.kind

    def __call__(
        self, inputs: Mapping[str, Array], threshold: float
    ) -> tuple[dict[str, Array], tuple[int, ...]]:
        """Run each row of some inputs until a head is confident.

        Rows run one by one: each leaves where it would leave alone, with equal outputs.

        Args:
            inputs: Input name -> [batch, ...].
            threshold: The largest probability of a class from which a head answers.

        Returns:
            Output name -> [batch, ...], and the stage that answered each row.

        Raises:
            RuntimeError: There is not enough memory, or the network rejects the values.
        """
        count = len(next(iter(inputs.values())))
        rows = [
            self._row({name: array[row : row + 1] for name, array in inputs.items()}, np.float32(threshold))
            for row in range(count)
        ]
        answers, ends = zip(*rows, strict=True)
        return {self._output: answers[0] if count == 1 else np.concatenate(answers)}, ends

    def _row(self, tensors: Mapping[str, Array], threshold: np.float32) -> tuple[Array, int]:
        """Return the answer to one example [1, ...], and the stage that gave it."""
        for number, stage in enumerate(self._stages):
            outputs = stage(**tensors)
            answer = outputs[self._output]
            if FEATURES not in outputs or self._kind.predictions(answer).max() >= threshold:
                return answer, number
            tensors = {FEATURES: outputs[FEATURES]}
        raise RuntimeError("the last stage has no answer")


class NetworkWithExits:
    """The network of a package and its stages, for one thread at a time.

    Options are the network's own, followed by those with exits.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    def __init__(self, network: Network, stages: Stages, thresholds: Sequence[float]) -> None:
        """Run the network and its stages.

        Args:
            thresholds: The confidence from which heads answer, for each option with exits.
        """
        self.manifest: Manifest = network.manifest
        self.threads = network.threads
        self._network = network
        self._stages = stages
        self._own = len(network.manifest.branches) or 1
        self._thresholds = thresholds

    @property
    def shapes(self) -> Shapes | None:
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""
        return self._network.shapes

    def running(self, wanted: int) -> int:
        """Return the option that runs for a requested one: the same, because all are in memory."""
        return wanted

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes.

        Raises:
            RuntimeError: There is not enough memory.
        """
        return partial(self._run, self._network.prepared(inputs))

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run the network and all stages once, so that their first inference is not slower than others.

        Args:
            shapes: Shapes of the inputs; single examples by default.
        """
        self._network.warm_up(shapes)
        self._stages(zeros(self.manifest.inputs), _NEVER)

    def _run(self, run: Run, inputs: Mapping[str, Array], option: int) -> Ran:
        if option < self._own:
            return run(inputs, option)
        outputs, ends = self._stages(inputs, self._thresholds[option - self._own])
        return Ran(outputs, option, ends)


def with_exits(package: Package, network: Network, store: ExitStore) -> NetworkWithExits:
    """Return the network of a package with its stages, ready for single examples.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the file of the stages is missing, damaged or does not fit.
    """
    if EXIT_STAGES not in package.manifest.files:
        message = f"{package.directory / EXIT_STAGES} cannot be used: the manifest does not list it"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message)
    try:
        stages = Stages(package.read(EXIT_STAGES), store, network.threads)
        combined = NetworkWithExits(network, stages, [choice.threshold for choice in store.choices])
        combined.warm_up()
    except (ValueError, RuntimeError) as error:
        message = f"{package.directory / EXIT_STAGES} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    return combined

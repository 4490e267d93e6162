"""Training a package on the device with the plain LiteRT wheel (paper 5.1), and serving what was trained."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from ai_edge_litert.interpreter import Interpreter

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files import write_bytes
from mistify.package.manifest import Manifest, TensorInfo, verify
from mistify.package.training import (
    ADAPT_STEP,
    EVALUATE,
    INFER,
    KD_WEIGHT,
    LEARNING_RATE,
    RESET,
    RESTORE,
    TRAIN,
    TRAIN_STEP,
    WEIGHTS,
    Training,
    weights_in,
    with_weights,
)
from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.interpreter import NETWORK

#: Arrays by the names of inputs, outputs or weights; of a single input or output the array itself will do.
Given: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
Weights: TypeAlias = dict[str, npt.NDArray[np.float32]]


class Evaluation(NamedTuple):
    """How a network does on some examples: figures are neither right nor wrong, and do not count."""

    loss: float
    correct: int
    counted: int


class Trainer:
    """The training network of a package, with weights and the optimizer's state of its own.

    May be called from several threads, one at a time runs.

    Attributes:
        manifest: What the package says about itself.
        training: What of it is trained, and how; a step takes `training.batch_size` examples.
        ported: The weights that it was ported with, before any tuning on a device.
    """

    def __init__(self, manifest: Manifest, training: Training, interpreter: Interpreter) -> None:
        self.manifest = manifest
        self.training = training
        self._interpreter = interpreter
        self._steps: Mapping[str, Any] = interpreter.get_signature_runner(TRAIN_STEP).get_input_details()
        self._lock = threading.Lock()
        self.ported = self.weights()

    def train_step(
        self,
        inputs: Given,
        targets: Given,
        learning_rate: float,
        teacher: Given | None = None,
        kd_weight: float = 1.0,
    ) -> float:
        """One step of the optimizer; the loss before it.

        Args:
            inputs: [batch_size, ...].
            targets: Classes, labels or figures [batch_size, ...], by output; a class of -1 is ignored.
            learning_rate: Of this step.
            teacher: The probabilities that a teacher, or the mean of several, gives, by output.
            kd_weight: How much the teacher counts beside the targets.

        Raises:
            MistifyError: INVALID_DATASET, with everything that does not fit.
        """
        given = self._inputs(inputs) | self._targets(targets) | self._taught(teacher)
        self._require_batch(given)
        scalars = {KD_WEIGHT: 0.0 if teacher is None else kd_weight, LEARNING_RATE: learning_rate}
        return self._loss(TRAIN_STEP, **given, **{name: np.float32(value) for name, value in scalars.items()})

    def adapt_step(self, inputs: Given, learning_rate: float) -> float:
        """One plain step that makes the network surer of inputs without targets; their entropy before it.

        It changes scales and shifts alone.

        Raises:
            MistifyError: INVALID_DATASET, also where `training.adapts` says that there is nothing to adapt.
        """
        if not self.training.adapts:
            reason = "the package has no scales and shifts that are trained, or no outputs with an entropy"
            raise MistifyError(ErrorCode.INVALID_DATASET, reason)
        given = self._inputs(inputs)
        self._require_batch(given)
        return self._loss(ADAPT_STEP, **given, **{LEARNING_RATE: np.float32(learning_rate)})

    def infer(self, inputs: Given) -> dict[str, Array]:
        """The outputs by name, of any number of examples."""
        return self._run(INFER, **self._inputs(inputs))

    def evaluate(self, inputs: Given, targets: Given) -> Evaluation:
        """The loss on any number of examples, and how many of their targets are told right."""
        found = self._run(EVALUATE, **self._inputs(inputs), **self._targets(targets))
        return Evaluation(float(found["loss"]), int(found["correct"]), int(found["counted"]))

    def weights(self) -> Weights:
        """All weights that are trained, by name."""
        found = self._run(WEIGHTS)
        return {weight.name: np.array(found[weight.tensor]) for weight in self.training.weights}

    def restore(self, weights: Mapping[str, npt.ArrayLike]) -> None:
        """Go on from other weights, of which all have to be given, and forget the optimizer's state.

        Raises:
            MistifyError: INVALID_DATASET, naming those that are missing, have another shape, or are unknown.
        """
        arrays = {name: np.ascontiguousarray(values, np.float32) for name, values in weights.items()}
        known = {weight.name: weight for weight in self.training.weights}
        wrong = [name for name in known if name not in arrays or arrays[name].shape != known[name].shape]
        others = sorted(arrays.keys() - known.keys())
        if wrong or others:
            fixes = {"mend": wrong, "leave out": others}
            told = "; ".join(f"{fix} {', '.join(names)}" for fix, names in fixes.items() if names)
            reason = f"expected the weights {', '.join(known)} in their shapes; {told}"
            raise MistifyError(ErrorCode.INVALID_DATASET, reason)
        self._run(RESTORE, **{weight.tensor: arrays[name] for name, weight in known.items()})
        self.reset()

    def reset(self) -> None:
        """Forget the optimizer's state."""
        self._run(RESET)

    def _run(self, signature: str, **given: Any) -> dict[str, Array]:
        with self._lock:
            found: dict[str, Array] = self._interpreter.get_signature_runner(signature)(**given)
        return found

    def _loss(self, signature: str, **given: Any) -> float:
        return float(self._run(signature, **given)["loss"])

    def _inputs(self, inputs: Given) -> dict[str, Array]:
        positional, named = ((), inputs) if isinstance(inputs, Mapping) else ((inputs,), {})
        return bind(self.manifest.inputs, positional, named)

    def _targets(self, targets: Given) -> dict[str, Array]:
        return self._by_output(self.training.targets, targets)

    def _taught(self, teacher: Given | None) -> dict[str, Array]:
        """What the teacher says, or nothing of it, which `train` has to be given as well."""
        if teacher is not None:
            return self._by_output(self.training.teachers, teacher)
        batch = self.training.batch_size
        shapes = {info.name: (batch, *info.shape[1:]) for info in self.manifest.outputs}
        return {
            tensor: np.zeros(shapes[output], np.float32) for output, tensor in self.training.teachers.items()
        }

    def _by_output(self, tensors: Mapping[str, str], given: Given) -> dict[str, Array]:
        """What is said of each output, by the tensors that take it."""
        outputs = {output: self._info(output, tensor) for output, tensor in tensors.items()}
        positional, named = ((), given) if isinstance(given, Mapping) else ((given,), {})
        narrow = {
            name: _narrowed(values, outputs[name].dtype) if name in outputs else values
            for name, values in named.items()
        }
        first = next(iter(outputs.values())).dtype
        bound = bind(list(outputs.values()), [_narrowed(values, first) for values in positional], narrow)
        return {tensors[output]: values for output, values in bound.items()}

    def _info(self, output: str, tensor: str) -> TensorInfo:
        detail = self._steps[tensor]
        return TensorInfo(name=output, dtype=np.dtype(detail["dtype"]).name, shape=(-1, *detail["shape"][1:]))

    def _require_batch(self, given: Mapping[str, Array]) -> None:
        batch = self.training.batch_size
        wrong = {name: len(values) for name, values in given.items() if len(values) != batch}
        if wrong:
            fix = "give every step as many, some of them twice where they do not go round"
            problems = [Problem(name, f"{count} examples", f"{batch}", fix) for name, count in wrong.items()]
            raise MistifyError(ErrorCode.INVALID_DATASET, "a step takes a fixed number of examples", problems)


def load_trainer(package: str | os.PathLike[str], threads: int | None = None) -> Trainer:
    """The training network of a package in a directory, with the weights that the package serves.

    Args:
        package: The package's directory.
        threads: How many threads LiteRT uses; its own choice if not given.

    Raises:
        MistifyError: NOT_FOUND, also where the package has no training network, with the reason;
            CORRUPT_PACKAGE.
    """
    directory = Path(package)
    manifest = verify(directory)
    training = training_of(directory, manifest)
    interpreter = Interpreter(model_path=str(directory / TRAIN), num_threads=threads)
    trainer = Trainer(manifest, training, interpreter)
    trainer.restore(weights_in((directory / NETWORK).read_bytes(), training))
    return trainer


def write_weights(
    package: str | os.PathLike[str], weights: Mapping[str, npt.ArrayLike], out: str | os.PathLike[str]
) -> Path:
    """Write the `serve.tflite` of a package with other weights, as fast as it was: nothing is converted.

    Args:
        package: The package's directory.
        weights: Some or all of those that are trained, by name.
        out: The file to write; it is there completely or not at all.

    Raises:
        MistifyError: as `load_trainer`; INVALID_DATASET for weights that do not fit.
    """
    directory = Path(package)
    manifest = verify(directory)
    try:
        content = with_weights((directory / NETWORK).read_bytes(), training_of(directory, manifest), weights)
    except (KeyError, ValueError) as error:
        raise MistifyError(ErrorCode.INVALID_DATASET, str(error.args[0])) from error
    target = Path(out)
    write_bytes(target, content)
    return target


def training_of(directory: Path, manifest: Manifest) -> Training:
    """What the training network of a package trains.

    Raises:
        MistifyError: NOT_FOUND, there is none, with the reason.
    """
    if manifest.training is None:
        reason = manifest.training_note or "only float32 packages without branches have one"
        raise MistifyError(ErrorCode.NOT_FOUND, f"{directory} has no training network: {reason}")
    return manifest.training


def _narrowed(values: npt.ArrayLike, dtype: str) -> npt.ArrayLike:
    """Whole numbers and figures in the precision of the network: labels are int64 almost everywhere."""
    array = np.asarray(values)
    return array.astype(dtype) if np.can_cast(array.dtype, dtype, "same_kind") else array

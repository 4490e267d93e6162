"""Training of a package on the device with plain LiteRT, and its tuned `serve.tflite` (paper 5.1)."""

import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.writing import write_bytes
from mistify.litert import Interpreter, open_interpreter
from mistify.package.manifest import NETWORK, Manifest, TensorInfo
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
from mistify.package.verification import verify
from mistify.tflite.stored import stored_constants
from mistify.wording import counted
from mistify_client.examples import Examples, label_problems
from mistify_client.runtime.inputs import Array, bind
from mistify_client.runtime.trust import require_trusted

#: Examples per batch of predictions.
_CHUNK = 256

#: Arrays by input or output name; for a single one, the array itself is enough.
NamedArrays: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
Weights: TypeAlias = dict[str, npt.NDArray[np.float32]]


class BatchScore(NamedTuple):
    """The loss on a batch, the number of correct predictions, and the number of classification targets.

    Numeric targets are not counted.
    """

    loss: float
    correct: int
    counted: int


class PackageTrainer:
    """The training network of a package, with its own weights and optimizer state.

    It may be called from several threads; calls run one at a time.

    Attributes:
        training: The trained weights, targets and signatures; a step takes `training.batch_size` examples.
        ported: The weights of the ported package, before any tuning on a device, by name.
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
        inputs: NamedArrays,
        targets: NamedArrays,
        learning_rate: float,
        teacher: NamedArrays | None = None,
        kd_weight: float = 1.0,
    ) -> float:
        """Run one step of the optimizer.

        Args:
            inputs: [batch_size, ...], by input.
            targets: Classes, labels or numeric values [batch_size, ...], by output; a class of -1 is ignored.
            learning_rate: Learning rate of this step.
            teacher: Predictions of a teacher, or the mean of several, [batch_size, ...] by output.
            kd_weight: The weight of the teacher relative to the targets.

        Returns:
            The loss before the step.

        Raises:
            MistifyError: INVALID_DATASET, with every array that does not fit.
            ValueError: The learning rate or the weight is not a finite number from 0.
        """
        _check_finite(learning_rate=learning_rate, kd_weight=kd_weight)
        arrays = self._inputs(inputs) | self._targets(targets) | self._teacher_targets(teacher)
        self._require_batch(arrays)
        scalars = {KD_WEIGHT: 0.0 if teacher is None else kd_weight, LEARNING_RATE: learning_rate}
        return self._loss(TRAIN_STEP, arrays, scalars)

    def adapt_step(self, inputs: NamedArrays, learning_rate: float) -> float:
        """Run one step of plain gradient descent that lowers the entropy of the outputs; needs no targets.

        Only scales and shifts change.

        Args:
            inputs: [batch_size, ...], by input.
            learning_rate: Learning rate of this step.

        Returns:
            The entropy before the step.

        Raises:
            MistifyError: INVALID_DATASET, also if there is nothing to adapt (`training.adapts` is false).
            ValueError: The learning rate is not a finite number from 0.
        """
        _check_finite(learning_rate=learning_rate)
        if not self.training.adapts:
            reason = "the package trains no scales and shifts, or has no outputs with an entropy"
            raise MistifyError(ErrorCode.INVALID_DATASET, reason)
        arrays = self._inputs(inputs)
        self._require_batch(arrays)
        return self._loss(ADAPT_STEP, arrays, {LEARNING_RATE: learning_rate})

    def infer(self, inputs: NamedArrays) -> dict[str, Array]:
        """Return the outputs for any number of examples.

        Args:
            inputs: [examples, ...], by input.

        Returns:
            [examples, ...] by output.
        """
        return self._run(INFER, **self._inputs(inputs))

    def predictions(self, examples: Examples) -> dict[str, Array]:
        """Return predictions as a teacher, for any number of examples.

        Returns:
            Probabilities or numeric values, [examples, ...] by output.
        """
        parts = [self.infer(chunk.inputs) for chunk in examples.chunks(_CHUNK)]
        return {
            name: kind.predictions(np.concatenate([part[name] for part in parts]))
            for name, kind in self.training.kinds.items()
        }

    def evaluate(self, inputs: NamedArrays, targets: NamedArrays) -> BatchScore:
        """Return the loss on any number of examples, and the number of correct predictions.

        Args:
            inputs: [examples, ...], by input.
            targets: [examples, ...], by output; a class of -1 is ignored.

        Raises:
            MistifyError: INVALID_DATASET, with every array that does not fit.
        """
        outputs = self._run(EVALUATE, **self._inputs(inputs), **self._targets(targets))
        return BatchScore(float(outputs["loss"]), int(outputs["correct"]), int(outputs["counted"]))

    def weights(self) -> Weights:
        """Return a copy of all trained weights, by name."""
        outputs = self._run(WEIGHTS)
        return {weight.name: np.array(outputs[weight.tensor]) for weight in self.training.weights}

    def restore(self, weights: Mapping[str, npt.ArrayLike]) -> None:
        """Replace all trained weights, and reset the optimizer.

        Args:
            weights: Weight name -> array, for all trained weights.

        Raises:
            MistifyError: INVALID_DATASET, naming weights that are missing, have another shape, or are
                unknown.
        """
        arrays = {name: np.ascontiguousarray(values, np.float32) for name, values in weights.items()}
        known = {weight.name: weight for weight in self.training.weights}
        wrong = [name for name in known if name not in arrays or arrays[name].shape != known[name].shape]
        others = sorted(arrays.keys() - known.keys())
        if wrong or others:
            fixes = {"fix": wrong, "leave out": others}
            hints = "; ".join(f"{fix} {', '.join(names)}" for fix, names in fixes.items() if names)
            reason = f"expected the weights {', '.join(known)} in their shapes; {hints}"
            raise MistifyError(ErrorCode.INVALID_DATASET, reason)
        self._run(RESTORE, **{weight.tensor: arrays[name] for name, weight in known.items()})
        self.reset()

    def reset(self) -> None:
        """Reset the optimizer's state, such as momentum."""
        self._run(RESET)

    def _run(self, signature: str, **arrays: Any) -> dict[str, Array]:
        with self._lock:
            outputs: dict[str, Array] = self._interpreter.get_signature_runner(signature)(**arrays)
        return outputs

    def _loss(self, signature: str, arrays: Mapping[str, Array], scalars: Mapping[str, float]) -> float:
        # As vectors of length 1: with scalar shapes, LiteRT 2.3 crashes on ARM64.
        vectors = {name: np.full(1, value, np.float32) for name, value in scalars.items()}
        return float(self._run(signature, **arrays, **vectors)["loss"].item())

    def _inputs(self, inputs: NamedArrays) -> dict[str, Array]:
        positional, named = ((), inputs) if isinstance(inputs, Mapping) else ((inputs,), {})
        return bind(self.manifest.inputs, positional, named)

    def _targets(self, targets: NamedArrays) -> dict[str, Array]:
        tensors, shapes = self.training.targets, {info.name: info.shape for info in self.manifest.outputs}
        arrays = self._by_output(tensors, targets)
        problems = [
            problem
            for name, kind in self.training.kinds.items()
            for problem in label_problems(name, arrays[tensors[name]], kind, shapes[name])
        ]
        if problems:  # LiteRT takes classes that do not exist, with a loss of 0
            raise MistifyError(ErrorCode.INVALID_DATASET, "the targets do not fit the network", problems)
        return arrays

    def _teacher_targets(self, teacher: NamedArrays | None) -> dict[str, Array]:
        """Return the teacher's predictions by tensor; zeros without one, as `train` needs all tensors."""
        if teacher is not None:
            return self._by_output(self.training.teachers, teacher)
        batch = self.training.batch_size
        shapes = {info.name: (batch, *info.shape[1:]) for info in self.manifest.outputs}
        return {
            tensor: np.zeros(shapes[output], np.float32) for output, tensor in self.training.teachers.items()
        }

    def _by_output(self, tensors: Mapping[str, str], arrays: NamedArrays) -> dict[str, Array]:
        """Return the checked array for each output, by its tensor."""
        outputs = {output: self._info(output, tensor) for output, tensor in tensors.items()}
        positional, named = ((), arrays) if isinstance(arrays, Mapping) else ((arrays,), {})
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

    def _require_batch(self, arrays: Mapping[str, Array]) -> None:
        batch = self.training.batch_size
        wrong = {name: len(values) for name, values in arrays.items() if len(values) != batch}
        if wrong:
            fix = "pass exactly that many, and repeat examples if there are too few"
            problems = [
                Problem(name, counted(count, "example"), f"{batch}", fix) for name, count in wrong.items()
            ]
            raise MistifyError(ErrorCode.INVALID_DATASET, "a step takes a fixed number of examples", problems)


def load_trainer(package: str | os.PathLike[str], threads: int | None = None) -> PackageTrainer:
    """Load the training network of a package, with the weights that the package serves.

    Args:
        threads: The number of threads of LiteRT; None for LiteRT's default.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or it has no training network, with the reason;
            STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, a file is missing or damaged;
            UNTRUSTED, no trusted key has signed it; UNAVAILABLE, the library for signatures is not installed;
            INVALID_CONFIG, the file of trusted keys cannot be used.
    """
    directory = Path(package)
    require_trusted(directory)
    manifest = verify(directory)
    training = training_of(directory, manifest)
    interpreter = open_interpreter(directory / TRAIN, threads)
    trainer = PackageTrainer(manifest, training, interpreter)
    trainer.restore(weights_in((directory / NETWORK).read_bytes(), training))
    return trainer


def start_from_current(trainer: PackageTrainer, version: Path, current: Path) -> None:
    """Give the trainer of a version the weights of the current one, if that was adapted from it.

    Raises:
        MistifyError: CONFLICT, it was adapted in layers that are not trained.
    """
    if current == version:
        return
    network, training = (current / NETWORK).read_bytes(), Manifest.load(current).training
    before, after = (stored_constants(each) for each in ((version / NETWORK).read_bytes(), network))
    adapted = {own.offset for place, own in before.items() if own.content != after[place].content}
    trained = {place.offset for weight in trainer.training.weights for place in weight.places}
    if training is None or not adapted <= trained:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"{current} was adapted to its data without labels, in layers that are not trained; run "
            '"mistify adaptation --reset", or port the goal with "tuning": {"trainable": "network", '
            '"adaptation": true}',
        )
    trainer.restore(weights_in(network, training))


def write_weights(
    package: str | os.PathLike[str], weights: Mapping[str, npt.ArrayLike], out: str | os.PathLike[str]
) -> Path:
    """Write the `serve.tflite` of a package with other weights.

    Nothing is converted: the values are replaced in place, so the network runs as fast as before.

    Args:
        weights: Weight name -> array, for some or all trained weights.
        out: The file to write, atomically.

    Returns:
        The path of the file.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or it has no training network, with the reason;
            STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, a file is missing or damaged;
            INVALID_DATASET, the weights do not fit.
        OSError: The file cannot be written.
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
    """Return the description of a package's training network.

    Args:
        directory: The directory of the package, for the message.

    Raises:
        MistifyError: NOT_FOUND, the package has none, with the reason.
    """
    if manifest.training is None:
        raise MistifyError(
            ErrorCode.NOT_FOUND, f"{directory} has no {TRAIN}: {_no_training_because(manifest)}"
        )
    return manifest.training


def _no_training_because(manifest: Manifest) -> str:
    """Return why a package cannot be trained, and how to get one that can."""
    if manifest.training_note:
        return manifest.training_note
    return (
        'port the goal with "tuning": {"trainable": "network"} in the config, and without "quantization", '
        '"branches" and "compression"'
    )


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}: give a finite number from 0")


def _narrowed(values: npt.ArrayLike, dtype: str) -> npt.ArrayLike:
    """Convert integers and floats to the network's precision: labels are usually int64."""
    array = np.asarray(values)
    return array.astype(dtype) if np.can_cast(array.dtype, dtype, "same_kind") else array

"""Conversion of float32 packages that can be tuned on the device (paper 5.1)."""

from collections.abc import Mapping

import keras
import numpy as np

from executors.outputs.objectives import Binary, Categorical, OutputObjective
from executors.structure import fold_batch_norm
from executors.structure.signature import Activation
from mistify.config.package.tuning import TuningConfig
from mistify.package.manifest import TunableTensor
from mistify.package.training import INFER, OutputEncoding, TrainedWeight, Training
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.placement import Places, convert_placed
from mistify_server.worker.packaging.conversion.result import ConvertedNetworks
from mistify_server.worker.packaging.scheduling.memory import with_little_memory
from mistify_server.worker.packaging.tflite.isolation import LiteRtError
from mistify_server.worker.packaging.tflite.runner import Arrays, Runner
from mistify_server.worker.packaging.training.network import (
    TrainingNetwork,
    convert_training,
    target_of,
    teacher_of,
    tensor_of,
)
from mistify_server.worker.packaging.training.operations.builtins import UntrainableError
from mistify_server.worker.packaging.training.parts import trainable_weights

#: Maximum difference between the outputs of both networks, relative to the largest output.
_TOLERANCE = 1e-5


def convert_trainable(
    model: keras.Model,
    objectives: Mapping[str, OutputObjective],
    tuning: TuningConfig,
    examples: Arrays,
) -> ConvertedNetworks:
    """Convert a checkpoint to a network for inference and one for training.

    Args:
        model: A checkpoint.
        objectives: Output -> its objective.
        tuning: The part of the network to train, and the settings for training.
        examples: Input -> [n, ...], on which the outputs of both networks must agree.
    """
    folded = fold_batch_norm(model)
    requested = trainable_weights(folded, tuning)
    network, places = convert_placed(folded, requested)
    trained = {name: requested[name] for name in places}
    try:
        if not trained:
            raise UntrainableError("the converter merges all of its weights with others")
        made = TrainingNetwork(folded, trained, objectives, tuning)
        training = with_little_memory(convert_training(made))
        _require_same(network, training, examples)
    except UntrainableError as error:
        return ConvertedNetworks(convert(model), note=f"cannot be trained on a device: {error}")
    lost = [name for name in requested if name not in trained]
    note = f"not trained, because the converter merges them with others: {', '.join(lost)}" if lost else ""
    tunable = {
        name: TunableTensor(shape=tuple(variable.shape), norm=float(np.linalg.norm(variable.numpy())))
        for name, variable in trained.items()
    }
    return ConvertedNetworks(network, training, _record(made, trained, places, tuning), note, tunable)


def _record(
    made: TrainingNetwork, trained: Mapping[str, keras.Variable], places: Places, tuning: TuningConfig
) -> Training:
    return Training(
        trainable=tuning.trainable,
        optimizer=tuning.optimizer,
        batch_size=tuning.batch_size,
        adapts=made.adapts,
        targets={name: target_of(name) for name in made.objectives},
        teachers={name: teacher_of(name) for name in made.objectives},
        kinds={name: kind_of(objective) for name, objective in made.objectives.items()},
        weights=tuple(
            TrainedWeight(name=name, tensor=tensor_of(at), shape=tuple(variable.shape), places=places[name])
            for at, (name, variable) in enumerate(trained.items())
        ),
    )


def kind_of(objective: OutputObjective) -> OutputEncoding:
    """Return the encoding of an output's values."""
    match objective:
        case Categorical(activation=Activation.SOFTMAX):
            return OutputEncoding.SOFTMAX
        case Categorical():
            return OutputEncoding.LOGITS
        case Binary(activation=Activation.SIGMOID):
            return OutputEncoding.SIGMOID
        case Binary():
            return OutputEncoding.LOGIT
        case _:
            return OutputEncoding.FIGURES


def _require_same(network: bytes, training: bytes, examples: Arrays) -> None:
    """Raise an error unless the training network computes the same outputs as the served one.

    The comparison uses as many examples as fit into a batch of both.
    """
    served, count = Runner(network), len(next(iter(examples.values())))
    try:
        trained = Runner(training, INFER)
        count = min(served.examples_at_once(count), trained.examples_at_once(count))
        compared = {name: array[:count] for name, array in examples.items()}
        actual = trained(compared)
    except LiteRtError as error:
        raise UntrainableError(f"LiteRT cannot run the training network: {error.reason}") from error
    for name, output in served(compared).items():
        difference = float(np.abs(actual[name] - output).max())
        if not difference <= _TOLERANCE * max(1.0, float(np.abs(output).max())):
            raise UntrainableError(f"its output {name} differs from the served one by {difference:.2g}")

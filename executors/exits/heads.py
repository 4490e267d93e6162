"""Heads: small classifiers of the pooled features at a position, trained on the frozen network."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np

from executors.compression.training import compressing_trainer
from executors.data import Array, Dataset
from executors.exits.trunk import Position, Trunk, pooled
from executors.outputs.objectives import objective_of, predictions
from executors.structure.signature import Activation, Output, signature_of
from executors.training.augmentation import mirrored
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from executors.training.trainer import cosine
from mistify.config.data.dataset import DataSettings

layers = keras.layers

#: The largest number of units of the hidden layer, and its largest share of the network's multiply-adds.
#: Without room for more units than classes, there is no hidden layer.
_HIDDEN: Final = 64
_SHARE: Final = 0.02

#: Settings of the training; the number of steps grows with the data.
_DROPOUT: Final = 0.1
_RATE: Final = 2e-3
_EPOCHS: Final = 8
_LEAST_STEPS: Final = 200
_MOST_STEPS: Final = 3_000

#: Memory for the pooled features of all training examples, in bytes.
_MOST_BYTES: Final = 1 << 29

#: The least standard deviation of a feature: some are always zero.
_LEAST_DEVIATION: Final = 1e-3


@dataclass(frozen=True)
class Head:
    """A trained head.

    Attributes:
        position: The position of its input.
        classifier: From the pooled features at the position to the network's output.
    """

    position: Position
    classifier: keras.Model

    @property
    def model(self) -> keras.Model:
        """The head with its pooling, from the features at the position."""
        features = keras.Input(self.position.shape)
        return keras.Model(features, self.classifier(layers.Flatten()(pooled(features))))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds for one example."""
        kernels = (weight.shape for weight in self.classifier.weights if len(weight.shape) == 2)
        return sum(inputs * units for inputs, units in kernels)


def train_heads(model: keras.Model, trunk: Trunk, setup: TrainingSetup, seed: int) -> list[Head]:
    """Return a head for each position of a network, trained on labels and the network's own predictions.

    Args:
        model: The network, with a single output that classifies whole examples; it is not changed.
        setup: The training data, and the settings.
        seed: Seed for weights and the order of the examples.
    """
    names = [f"head_{at}" for at in range(len(trunk.positions))]
    inputs = [f"{name}_features" for name in names]
    (output,) = signature_of(model).outputs
    *features, outputs, targets = _examples_of_heads(model, trunk, setup)
    scales = [(array.mean(0), np.maximum(array.std(0), _LEAST_DEVIATION)) for array in features]
    standard = [(array - mean) / std for array, (mean, std) in zip(features, scales, strict=True)]
    own_predictions = predictions({"": objective_of(output, targets)}, {"": outputs})[""]
    data = Dataset(dict(zip(inputs, standard, strict=True)), dict.fromkeys(names, targets))
    own = TrainingSetup(
        train=data,
        validation=data,
        teacher=dict.fromkeys(names, own_predictions),
        params=setup.params,
        settings=DataSettings(class_weights=setup.settings.class_weights),
    )
    keras.utils.set_random_seed(seed)
    sizes = {name: array.shape[1] for name, array in data.inputs.items()}
    most = round(_SHARE * trunk.multiply_adds)
    classifiers = keras.Model(*_classifiers(sizes, names, output, most))
    steps = round(_EPOCHS * len(data) / setup.params.batch_size)
    trainer = compressing_trainer(classifiers, own, seed, _RATE)
    trainer.train(cosine(min(max(steps, _LEAST_STEPS), _MOST_STEPS)))
    return [
        _head(position, [layer for layer in classifiers.layers if layer.name in (_hidden(name), name)], scale)
        for position, name, scale in zip(trunk.positions, names, scales, strict=True)
    ]


def _examples_of_heads(model: keras.Model, trunk: Trunk, setup: TrainingSetup) -> Iterator[Array]:
    """Yield the features at each position, the outputs, and the targets of the training examples.

    If training flips images, the mirrored examples follow.
    """
    read, train = trunk.pooled(), setup.train
    flips = setup.settings.augment is not None and setup.settings.augment.flip
    size = 4 * sum(tensor.shape[-1] for tensor in read.outputs) * (1 + flips)
    train = train.sample(max(1, _MOST_BYTES // size))
    evaluation, images = Evaluation(read), [train.inputs]
    if flips:
        images.append(mirrored(model, train.inputs))
    parts = [evaluation.outputs(inputs).values() for inputs in images]
    yield from map(np.concatenate, zip(*parts, strict=True))
    (targets,) = train.targets.values()
    yield np.concatenate([targets] * len(images))


def _classifiers(
    sizes: Mapping[str, int], names: Sequence[str], output: Output, most: int
) -> tuple[list[Any], list[Any]]:
    """Return the inputs, standardised features, and the outputs of all heads.

    Args:
        most: The largest number of multiply-adds of a hidden layer.
    """
    inputs = [keras.Input([size], name=name) for name, size in sizes.items()]
    outputs, classes = [], output.shape[-1] or 0
    for x, name, size in zip(inputs, names, sizes.values(), strict=True):
        x = layers.Dropout(_DROPOUT)(x)  # noqa: PLW2901 - the input itself is kept in the list
        units = min(_HIDDEN, most // size)
        if units > classes:
            x = layers.Dense(units, "relu", name=_hidden(name))(x)  # noqa: PLW2901
        outputs.append(layers.Dense(classes, _activation(output), name=name)(x))
    return inputs, outputs


def _hidden(name: str) -> str:
    return f"{name}_hidden"


def _activation(output: Output) -> str | None:
    return "softmax" if output.activation is Activation.SOFTMAX else None


def _head(position: Position, trained: Sequence[keras.layers.Layer], scale: Sequence[Array]) -> Head:
    """Return a head of the features themselves, from layers of standardised features."""
    (kernel, bias), (mean, deviation) = trained[0].get_weights(), scale
    kernel = kernel / deviation[:, None]
    classifier = keras.Sequential(
        [keras.Input(mean.shape), *(layers.Dense.from_config(layer.get_config()) for layer in trained)]
    )
    others = [weight for layer in trained[1:] for weight in layer.get_weights()]
    classifier.set_weights([kernel, bias - mean @ kernel, *others])
    return Head(position, classifier)

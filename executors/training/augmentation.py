"""Random changes of the images of a training step, in its own graph, and which of them suit the data."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

import keras
import tensorflow as tf

from executors.data import Dataset
from executors.structure.signature import Shape, Signature, signature_of
from executors.training.evaluation import evaluate
from mistify.config.dataset import Augmentation
from mistify.config.metric import Metric
from mistify.parsing.validation import InvalidValue

#: Changes inputs, by name, at random; the seed is two integers.
Augment = Callable[[Mapping[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]

#: The share of its score that a network may lose by a change that suits its data. ResNet-8 loses nothing on
#: CIFAR-10 that is flipped, and 4 % where it is shifted by an eighth; a network for digits a third, and half.
_MOST_LOST: Final = 0.05

#: The share of its smallest side by which an image is shifted at the most.
_MOST_SHIFTED: Final = 1 / 8


def augmenting(model: keras.Model, settings: Augmentation | None) -> Augment:
    """Return what changes the inputs of a model that are images [n, height, width, channels] of floats.

    Raises:
        InvalidValue: There are none, they are smaller than they would be shifted, or what is said of their
            positions would have to move with them.
    """
    if settings is None:
        return lambda inputs, _: dict(inputs)
    signature = signature_of(model)
    of_positions = [output.name for output in signature.outputs if _positions(output.shape) != 1]
    if of_positions and (settings.flip or settings.crop):
        raise InvalidValue(
            settings.model_dump(exclude_defaults=True),
            f"no flip and no crop, as {of_positions[0]} is about positions, which they move",
            "change the brightness alone",
        )
    images = _images(signature)
    smallest = min((size or settings.crop + 1 for shape in images.values() for size in shape[:2]), default=0)
    if smallest <= settings.crop:
        raise InvalidValue(
            settings.model_dump(exclude_defaults=True),
            f"a crop below {smallest}" if images else "a model of images [height, width, channels]",
            "lower it" if images else "remove it",
        )

    def augment(inputs: Mapping[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        changed = {name: _changed(tf.cast(inputs[name], tf.float32), settings, seed) for name in images}
        return {**inputs, **changed}

    return augment


def suitable_augmentation(model: keras.Model, data: Dataset, metric: Metric) -> Augmentation | None:
    """Return the flips and crops that a trained network hardly minds; None if it minds each of them.

    What changes the meaning of images, as a flip does of digits, it has never seen with this meaning.

    Args:
        model: The network.
        data: Examples that it was not trained on.
        metric: By which it is scored on them.
    """
    sides = [size for shape in _images(signature_of(model)).values() for size in shape[:2] if size]
    suitable, score = Augmentation(), evaluate(model, data, metric)
    for change in ({"flip": True}, {"crop": int(_MOST_SHIFTED * min(sides, default=0))}):
        further = suitable.model_copy(update=change)
        if further == suitable:
            continue
        if metric.lost(_score_after(model, data, metric, further), score) <= _MOST_LOST:
            suitable = further
    return None if suitable == Augmentation() else suitable


def _score_after(model: keras.Model, data: Dataset, metric: Metric, settings: Augmentation) -> float:
    """Return the score on changed images; the worst where images cannot be changed so."""
    try:
        augment = augmenting(model, settings)
    except InvalidValue:
        return metric.worst
    changed = augment({name: tf.constant(array) for name, array in data.inputs.items()}, tf.constant([0, 0]))
    inputs = {name: tensor.numpy() for name, tensor in changed.items()}
    return evaluate(model, Dataset(inputs, data.targets), metric)


def _images(signature: Signature) -> dict[str, Shape]:
    """Return the shapes of the inputs that are images of floats, by their names."""
    return {
        tensor.name: tensor.shape
        for tensor in signature.inputs
        if len(tensor.shape) == 3 and "float" in tensor.dtype
    }


def _positions(shape: Shape) -> int:
    """Return the positions of an output, the last axis of which are classes or figures."""
    return prod(size or 0 for size in shape[:-1])


def _changed(images: tf.Tensor, settings: Augmentation, seed: tf.Tensor) -> tf.Tensor:
    count = tf.shape(images)[0]
    if settings.flip:
        flipped = tf.random.stateless_uniform([count, 1, 1, 1], seed) < 0.5
        images = tf.where(flipped, tf.reverse(images, [2]), images)
    if settings.crop:
        for axis in (1, 2):
            images = _shifted(images, axis, settings.crop, seed + axis)
    if settings.brightness:
        low, high = 1 - settings.brightness, 1 + settings.brightness
        images *= tf.random.stateless_uniform([count, 1, 1, 1], seed + 3, low, high)
    return images


def _shifted(images: tf.Tensor, axis: int, most: int, seed: tf.Tensor) -> tf.Tensor:
    """Return each image shifted along an axis by up to `most` pixels; its border fills the gap."""
    size = tf.shape(images)[axis]
    shifts = tf.random.stateless_uniform([tf.shape(images)[0], 1], seed, -most, most + 1, tf.int32)
    places = tf.clip_by_value(tf.range(size)[None] + shifts, 0, size - 1)
    return tf.gather(images, places, axis=axis, batch_dims=1)

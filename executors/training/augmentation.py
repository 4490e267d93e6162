"""Random changes of the images of a training step, in its own graph, and which of them suit the data."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.data import Array, Dataset
from executors.inspection.limits import GIB
from executors.outputs.metrics import score
from executors.outputs.objectives import objectives_of
from executors.structure.signature import Shape, Signature, signature_of
from executors.training.evaluation import Evaluation
from mistify.config.data.dataset import Augmentation
from mistify.config.data.metric import Metric
from mistify.costs.network import FLOAT_BYTES
from mistify.parsing.validation import InvalidValue

#: Changes inputs, by name, at random; the seed is two integers.
Augment = Callable[[Mapping[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]

#: The share of what a network knows beyond a constant answer that it may lose by a change that suits its
#: data. ResNet-8 loses nothing on CIFAR-10 that is flipped, and 5 % where it is shifted by an eighth; a
#: network for digits a third, and half.
_MOST_LOST: Final = 0.06

#: The share of what there is to know that a network has to know, to tell what suits its data.
_LEAST_KNOWN: Final = 0.1

#: Examples on which it tells, and what they may take as floats, in bytes.
_LEAST_EXAMPLES: Final = 100
_MOST_EXAMPLES: Final = 1_000
_MOST_BYTES: Final = GIB // 4

#: The share of its smallest side by which an image is shifted at most.
_MOST_SHIFTED: Final = 1 / 8


def augmenting(model: keras.Model, settings: Augmentation | None) -> Augment:
    """Return a function that changes inputs that are images [n, height, width, channels] of floats.

    Raises:
        InvalidValue: There are no images, they are smaller than they would be shifted, or labels of their
            positions would have to move with them.
    """
    if settings is None:
        return lambda inputs, _: dict(inputs)
    signature = signature_of(model)
    of_positions = [output.name for output in signature.outputs if _positions(output.shape) != 1]
    if of_positions and (settings.flip or settings.crop):
        raise InvalidValue(
            settings.model_dump(exclude_defaults=True),
            f"no flip and no crop, because {of_positions[0]} is about positions, which these change",
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


def suitable_augmentation(
    model: keras.Model, data: Dataset, metric: Metric, start: Augmentation | None = None
) -> Augmentation | None:
    """Return the flips and crops that a trained network hardly minds; None if it minds each of them.

    Args:
        data: Examples that it was not trained on.
        metric: The metric that scores the network.
        start: Changes that are made in any case.
    """
    sides = [size for shape in _images(signature_of(model)).values() for size in shape[:2] if size]
    suitable = start or Augmentation()
    for change in ({"flip": True}, {"crop": int(_MOST_SHIFTED * min(sides, default=0))}):
        further = suitable.model_copy(update=change)
        is_open = not any(getattr(suitable, name) for name in change)
        if is_open and recognises(model, data, metric, further):
            suitable = further
    return None if suitable == Augmentation() else suitable


def recognises(model: keras.Model, data: Dataset, metric: Metric, changes: Augmentation) -> bool:
    """Check whether a trained network does about as well on changed images as on the originals.

    A change that alters the meaning of images, as a flip does for digits, produces images that the network
    has never seen with this meaning. A network that hardly knows more than a constant answer cannot tell, nor
    can too few examples.

    Args:
        data: Examples that the network was not trained on, of which some are used.
        metric: The metric that scores the network.
        changes: The changes of the images.
    """
    if changes == Augmentation() or len(data) < _LEAST_EXAMPLES:
        return False
    try:
        augment = augmenting(model, changes)
    except InvalidValue:
        return False
    size = sum(array[0].size for array in data.inputs.values()) * FLOAT_BYTES
    data = data.sample(max(_LEAST_EXAMPLES, min(_MOST_EXAMPLES, _MOST_BYTES // size)))
    evaluation, objectives = Evaluation(model), objectives_of(model, data)
    changed = augment({name: tf.constant(array) for name, array in data.inputs.items()}, tf.constant([0, 0]))
    outputs = evaluation.outputs(data.inputs)
    constant = {name: np.broadcast_to(of.mean(axis=0), of.shape) for name, of in outputs.items()}
    afterwards = evaluation.outputs({name: tensor.numpy() for name, tensor in changed.items()})
    known, unknowing, then = (
        score(metric, objectives, of, data.targets) for of in (outputs, constant, afterwards)
    )
    upwards = 1 if metric.is_share else -1
    knowledge, lost = upwards * (known - unknowing), upwards * (known - then)
    knows = knowledge >= _LEAST_KNOWN * abs(metric.perfect - unknowing) and knowledge > 0
    return bool(knows and lost <= _MOST_LOST * knowledge)


def mirrored(model: keras.Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs whose images are mirrored left to right, all of them, as flips do."""
    images = _images(signature_of(model))
    return {name: array[:, :, ::-1] if name in images else array for name, array in inputs.items()}


def flipped(count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Return which of so many images [count] a step flips that has this seed."""
    return tf.random.stateless_uniform([count], seed) < 0.5


def _images(signature: Signature) -> dict[str, Shape]:
    """Return the shapes of the inputs that are images of floats, by their names."""
    return {
        tensor.name: tensor.shape
        for tensor in signature.inputs
        if len(tensor.shape) == 3 and "float" in tensor.dtype
    }


def _positions(shape: Shape) -> int:
    """Return the number of positions of an output, whose last axis is classes or figures."""
    return prod(size or 0 for size in shape[:-1])


def _changed(images: tf.Tensor, settings: Augmentation, seed: tf.Tensor) -> tf.Tensor:
    count = tf.shape(images)[0]
    if settings.flip:
        images = tf.where(flipped(count, seed)[:, None, None, None], tf.reverse(images, [2]), images)
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

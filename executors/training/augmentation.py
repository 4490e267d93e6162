"""Random image augmentation inside the training step's graph, and the choice of suitable changes."""

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
from mistify.costs.layer import FLOAT_BYTES
from mistify.parsing.validation import InvalidValue

#: A function that randomly changes inputs, by name; the seed is two integers.
Augment = Callable[[Mapping[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]]

#: Maximum share of a network's gain over a constant answer that may be lost by a suitable change. On
#: CIFAR-10, ResNet-8 loses nothing on flipped images, and 5 % on images shifted by an eighth; a digits
#: network loses a third and half.
_MOST_LOST: Final = 0.06

#: Minimum gain over a constant answer, as a share of the possible gain, for a network to judge changes.
_LEAST_KNOWN: Final = 0.1

#: Limits on the examples used for that, and their maximum size as floats, in bytes.
_LEAST_EXAMPLES: Final = 100
_MOST_EXAMPLES: Final = 1_000
_MOST_BYTES: Final = GIB // 4

#: Maximum shift of an image, as a share of its shorter side.
_MOST_SHIFTED: Final = 1 / 8


def augmenting(model: keras.Model, settings: Augmentation | None) -> Augment:
    """Return a function that changes float images [n, height, width, channels] among the inputs.

    Raises:
        InvalidValue: There are no images, they are too small for the shift, or the labels of their positions
            would have to move as well.
    """
    if settings is None:
        return lambda inputs, _: dict(inputs)
    signature = signature_of(model)
    of_positions = [output.name for output in signature.outputs if _positions(output.shape) != 1]
    if of_positions and (settings.flip or settings.crop):
        raise InvalidValue(
            settings.model_dump(exclude_defaults=True),
            f"no flip and no crop, because {of_positions[0]} has labels per position, which these would move",
            "only change the brightness",
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
    """Return the flips and crops that hardly affect a trained network; None if each of them does.

    Args:
        data: Examples that it was not trained on.
        metric: The metric that scores the network.
        start: Changes that are applied in any case.
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
    """Check whether a trained network performs about as well on changed images as on the originals.

    A change that alters the meaning of images, as a flip does for digits, produces images that the network
    has never seen with this meaning. The result is False if the network is hardly better than a constant
    answer, or if there are too few examples.

    Args:
        data: Examples that the network was not trained on; a sample of them is used.
        metric: The metric that scores the network.
        changes: The changes to the images.
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
    """Return inputs with all images mirrored left to right, as by flips."""
    images = _images(signature_of(model))
    return {name: array[:, :, ::-1] if name in images else array for name, array in inputs.items()}


def flipped(count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Return which of `count` images are flipped in a step with this seed [count]."""
    return tf.random.stateless_uniform([count], seed) < 0.5


def _images(signature: Signature) -> dict[str, Shape]:
    """Return the shapes of the inputs that are float images, by name."""
    return {
        tensor.name: tensor.shape
        for tensor in signature.inputs
        if len(tensor.shape) == 3 and "float" in tensor.dtype
    }


def _positions(shape: Shape) -> int:
    """Return the number of positions of an output, with classes or figures on its last axis."""
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
    """Return each image shifted along an axis by up to `most` pixels, with the gap filled by its border."""
    size = tf.shape(images)[axis]
    shifts = tf.random.stateless_uniform([tf.shape(images)[0], 1], seed, -most, most + 1, tf.int32)
    places = tf.clip_by_value(tf.range(size)[None] + shifts, 0, size - 1)
    return tf.gather(images, places, axis=axis, batch_dims=1)

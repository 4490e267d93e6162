"""The choice of augmentation: only by changes to images that a network hardly notices."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from mistify.package.manifest import TensorInfo
from mistify.package.training import OutputEncoding
from mistify_client.examples import Examples
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.augmentation import IMAGES, Augmentation, changed_inputs
from mistify_client.tuning.trainer import PackageTrainer
from mistify_client.tuning.training_loop import score_of

#: Maximum shift of an image, as a share of its shorter side.
_MOST_SHIFTED: Final = 1 / 8

#: Maximum share of a network's knowledge that a suitable change may hide. Knowledge is the loss of a constant
#: answer above the network's. An early ResNet-8 for CIFAR-10 loses at most 1 % of it on mirror images, 5 % on
#: shifted images, and 18 to 24 % on images upside down.
_MOST_LOST: Final = 0.1

#: Minimum knowledge of a network that judges changes, as a share of the loss of a constant answer.
_LEAST_KNOWN: Final = 0.1

#: Minimum number of examples for that.
_LEAST_EXAMPLES: Final = 50

#: Numbers of channels of an image: gray, or of three colours, each perhaps with transparency.
_CHANNELS: Final = (1, 2, 3, 4)

#: Keeps the logarithm of a probability finite, as in training.
_SMALLEST: Final = 1e-7

#: Examples per batch of predictions.
_CHUNK: Final = 256

_CLASSES: Final = frozenset({OutputEncoding.SOFTMAX, OutputEncoding.LOGITS})


def suitable_augmentation(trainer: PackageTrainer, examples: Examples) -> Augmentation | None:
    """Return the augmentation by those flips and shifts that a network hardly notices.

    A change that alters the meaning of images, as a flip does for digits, is noticed.

    Args:
        trainer: The trainer, with the weights before the tuning.
        examples: Examples that it was not trained on.

    Returns:
        None if there are no such changes, the network knows too little to judge, the inputs are not images,
        an output is not one class for each example, or the loss is not the mean cross entropy, as with class
        weights, for which there are no mixed labels.
    """
    sides, classes = _sides(trainer.manifest.inputs, examples), _classes(trainer, examples)
    if not sides or not classes or len(examples) < _LEAST_EXAMPLES:
        return None
    count, shift = len(examples), int(_MOST_SHIFTED * min(sides))
    none, still = np.zeros(count, np.bool_), np.zeros((count, 2), np.int64)
    predictions = _predictions(trainer, examples, none, still)
    constant = {name: np.broadcast_to(of.mean(axis=0), of.shape) for name, of in predictions.items()}
    loss, most = _cross_entropy(predictions, examples), _cross_entropy(constant, examples)
    is_trained_on_it = math.isclose(score_of(trainer, examples).loss, loss, rel_tol=1e-3, abs_tol=1e-4)
    if not most - loss >= _LEAST_KNOWN * most or not is_trained_on_it:
        return None

    def hardly_notices(flips: npt.NDArray[np.bool_], shifts: npt.NDArray[np.int64]) -> bool:
        rise = _cross_entropy(_predictions(trainer, examples, flips, shifts), examples) - loss
        return rise <= _MOST_LOST * (most - loss)

    flip = hardly_notices(~none, still)
    shifts = np.random.default_rng(0).integers(-shift, shift, (count, 2), endpoint=True)
    shift = shift if hardly_notices(none, shifts) else 0
    return Augmentation(classes, flip, shift) if flip or shift else None


def _sides(inputs: tuple[TensorInfo, ...], examples: Examples) -> list[int]:
    """Return the heights and widths of all images; none if there are other arrays of four dimensions.

    Images are large enough for a shift by a pixel.
    """
    arrays = [
        (info, examples.inputs[info.name])
        for info in inputs
        if len(info.shape) == IMAGES and info.name in examples.inputs
    ]
    sides = [side for _, array in arrays for side in array.shape[1:3]]
    are_images = all(
        array.ndim == IMAGES and array.shape[-1] == info.shape[-1] and array.shape[-1] in _CHANNELS
        for info, array in arrays
    )
    return sides if are_images and min(sides, default=0) >= 1 / _MOST_SHIFTED else []


def _classes(trainer: PackageTrainer, examples: Examples) -> dict[str, int]:
    """Return the number of classes of each output; none unless each names one of them for each example."""
    kinds = trainer.training.kinds
    classes = {info.name: info.shape[-1] for info in trainer.manifest.outputs if info.name in kinds}
    if not set(kinds.values()) <= _CLASSES or classes.keys() != examples.targets.keys():
        return {}
    are_classes = all(
        labels.ndim == 1 and 0 <= labels.max() < classes[name] for name, labels in examples.targets.items()
    )
    return classes if are_classes else {}


def _predictions(
    trainer: PackageTrainer,
    examples: Examples,
    flips: npt.NDArray[np.bool_],
    shifts: npt.NDArray[np.int64],
) -> dict[str, Array]:
    """Return the predictions for changed images, of which only a chunk is in memory."""
    rows = np.array_split(np.arange(len(examples)), -(-len(examples) // _CHUNK))
    chunks = [
        trainer.predictions(Examples(changed_inputs(examples.subset(of), flips[of], shifts[of]), {}))
        for of in rows
    ]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def _cross_entropy(predictions: Mapping[str, Array], examples: Examples) -> float:
    """Return the cross entropy of predicted probabilities with the known labels: the sum over the outputs."""
    losses = []
    for name, labels in examples.targets.items():
        known = np.flatnonzero(labels >= 0)
        likely = predictions[name][known, labels[known].astype(np.int64)]
        losses.append(-float(np.log(likely + _SMALLEST).mean()))
    return sum(losses)

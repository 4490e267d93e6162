"""Random changes to the images of a batch (data augmentation): flips, shifts, and mixing with other images.

A few hundred images are learnt by heart in some passes. With changes that differ in each pass, a network
learns from them for longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.wording import counted, listed
from mistify_client.examples import Examples
from mistify_client.runtime.inputs import Array

#: Dimensions of images: [examples, height, width, channels].
IMAGES: Final = 4

#: Shares of the batches that are mixed by mixup and by CutMix.
_BLENDED, _PASTED = 0.25, 0.25


class TrainingBatch(NamedTuple):
    """A batch of examples, and targets besides their labels.

    Attributes:
        examples: Inputs, and the class of each example.
        teacher: Probabilities of the classes, by output.
        kd_weight: The weight of these probabilities relative to the classes.
    """

    examples: Examples
    teacher: Mapping[str, Array]
    kd_weight: float


@dataclass(frozen=True)
class Augmentation:
    """Random changes to batches of images, of which each output names a class.

    A quarter of the batches is blended with the same images in another order (mixup, Zhang et al., 2018), and
    in another quarter, parts of these are pasted in (CutMix, Yun et al., 2019).

    Attributes:
        classes: Output -> the number of its classes.
        flip: Whether half of the images are mirrored left to right.
        shift: Maximum shift in each direction, in pixels; what moves in is a reflection.
    """

    classes: Mapping[str, int]
    flip: bool = False
    shift: int = 0

    def __str__(self) -> str:
        shifted = f"shifted by up to {counted(self.shift, 'pixel')}" if self.shift else ""
        return f"randomly {listed([*filter(None, ['flipped' if self.flip else '', shifted]), 'mixed'])}"

    def augmented(
        self,
        examples: Examples,
        teacher: Mapping[str, Array] | None,
        kd_weight: float,
        rng: np.random.Generator,
    ) -> TrainingBatch:
        """Return a changed batch.

        A step takes one class for each example, and probabilities. So the class of a mixed image is one half
        of its label, and the other half is in the probabilities, with the teacher's targets. The loss of the
        batch is twice that of the label and the teacher's targets.

        Args:
            examples: The batch; a class of -1 is unknown, and such images are not mixed.
            teacher: The teacher's targets for the batch, by output; None without a teacher.
            kd_weight: The weight of the teacher's targets relative to the true ones.
        """
        count = len(examples)
        flips = (rng.random(count) < 0.5) & self.flip
        shifts = rng.integers(-self.shift, self.shift, (count, 2), endpoint=True)
        partners, shares = rng.permutation(count), rng.uniform(0, 0.5, count)
        corners, way = rng.random((count, 2)), rng.random()
        for labels in examples.targets.values():
            shares[(labels < 0) | (labels[partners] < 0)] = 0
        if way >= _BLENDED + _PASTED:
            shares[:] = 0
        inputs = {
            name: mixed(images, images[partners], shares, corners if way < _PASTED else None)
            if images.ndim == IMAGES
            else images
            for name, images in changed_inputs(examples, flips, shifts).items()
        }
        weight = 0.0 if teacher is None else 2 * kd_weight
        targets = {
            name: self._other_half(name, labels, partners, shares)
            for name, labels in examples.targets.items()
        }
        if teacher is not None:
            part = shares[:, None]
            targets = {
                name: (half + weight * ((1 - part) * teacher[name] + part * teacher[name][partners]))
                / (1 + weight)
                for name, half in targets.items()
            }
        narrow = {name: np.asarray(each, np.float32) for name, each in targets.items()}
        return TrainingBatch(Examples(inputs, examples.targets), narrow, 1 + weight)

    def _other_half(self, output: str, labels: Array, partners: Array, shares: Array) -> Array:
        """Return twice the mixed labels, less one for each example's own class [examples, classes]."""
        one, twice = np.eye(self.classes[output]), 2 * shares[:, None]
        labels = labels.astype(np.int64)
        return np.asarray((1 - twice) * one[labels] + twice * one[labels[partners]])


def changed_inputs(
    examples: Examples, flips: npt.NDArray[np.bool_], shifts: npt.NDArray[np.int64]
) -> dict[str, Array]:
    """Return the inputs of examples with flipped and shifted images; other inputs are unchanged.

    Args:
        flips: [examples], whether an image is mirrored left to right.
        shifts: [examples, 2], shifts in pixels down and to the right, before the flip.
    """
    return {
        name: _changed(array, flips, shifts) if array.ndim == IMAGES else array
        for name, array in examples.inputs.items()
    }


def mixed(images: Array, others: Array, shares: Array, corners: Array | None) -> Array:
    """Return images that are mixed with others, [count, height, width, channels].

    Args:
        images: The images, in the shape of the result.
        others: The other images, in the same shape.
        shares: [count], the share of the other image in each, from 0 to 1.
        corners: [count, 2], where a part of that share is pasted, as a share of the room for it down and to
            the right; None to blend all pixels.
    """
    weights = shares[:, None, None] if corners is None else _inside(images.shape[1:3], shares, corners)
    weights = np.asarray(weights[..., None], np.float32)
    blended = (1 - weights) * images + weights * others
    return np.asarray(np.rint(blended) if images.dtype.kind in "iu" else blended, images.dtype)


def _inside(size: tuple[int, ...], shares: Array, corners: Array) -> Array:
    """Return which pixels are in a part of the image's proportions [count, height, width]."""
    inside = []
    for axis, length in enumerate(size):
        part = length * np.sqrt(shares)
        start, at = corners[:, axis] * (length - part), np.arange(length)
        inside.append((at >= np.rint(start)[:, None]) & (at < np.rint(start + part)[:, None]))
    return np.asarray(inside[0][:, :, None] & inside[1][:, None])


def _changed(images: Array, flips: npt.NDArray[np.bool_], shifts: npt.NDArray[np.int64]) -> Array:
    rows, columns = (
        _reflected(np.arange(size) - shifts[:, axis, None], size)
        for axis, size in enumerate(images.shape[1:3])
    )
    columns = np.where(flips[:, None], columns[:, ::-1], columns)
    return np.asarray(images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None]])


def _reflected(at: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Return positions of an axis, with those beyond its ends reflected."""
    reflected: npt.NDArray[np.int64] = size - 1 - np.abs(size - 1 - np.abs(at))
    return reflected

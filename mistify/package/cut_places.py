"""Locations of the units of groups in a `.tflite`, for cutting on a device (NN-Factory 3.4)."""

from typing import Annotated

from pydantic import Field, model_validator

from mistify.package.records import Record

__all__ = ["ActivationSize", "ConstantCut", "CutAxis", "CutPlaces", "ShapeElement"]

Number = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class CutAxis(Record):
    """An axis of a constant that has entries for each unit of a group.

    The axis has `repeats * units * span` entries, as if it were three axes in this order. A dense layer
    behind a flattened image reads each channel once for each pixel (`repeats`). A unit of several neurons has
    adjacent entries (`span`).
    """

    axis: Number
    group: Number
    repeats: Count = 1
    span: Count = 1


#: Number of a graph, and of one of its tensors.
TensorPlace = tuple[Number, Number]


class ConstantCut(Record):
    """A constant that shrinks with the units of one or two groups.

    Attributes:
        tensors: The tensors that hold it, usually one in each graph. Its buffer does not identify it: the
            converter gives equal constants of different layers the same one.
        axes: The axes that shrink.
        modulated: Whether the first of the axes numbers the units that this kernel or bias makes, so that the
            scales of these units multiply it.
        shifted: Whether it is the bias to which the shifts of these units are added.
    """

    tensors: Annotated[tuple[TensorPlace, ...], Field(min_length=1)]
    axes: Annotated[tuple[CutAxis, ...], Field(min_length=1)]
    modulated: bool = False
    shifted: bool = False

    @model_validator(mode="after")
    def _cut_once(self) -> "ConstantCut":
        if len({axis.axis for axis in self.axes}) < len(self.axes):
            raise ValueError("an axis shrinks twice")
        return self


class ActivationSize(Record):
    """The length of an activation's axis, which shrinks by `per_unit` for each closed unit of a group."""

    tensor: TensorPlace
    axis: Number
    group: Number
    per_unit: Count


class ShapeElement(Record):
    """An element of a constant shape, such as a reshape's; it shrinks by `per_unit` for each closed unit.

    Attributes:
        index: Its place in the flattened constant.
    """

    tensor: TensorPlace
    index: Number
    group: Number
    per_unit: Count


class CutPlaces(Record):
    """All places of the groups of a network.

    Attributes:
        units: Number of units of each group.
    """

    units: tuple[Count, ...]
    constants: tuple[ConstantCut, ...]
    activations: tuple[ActivationSize, ...]
    shapes: tuple[ShapeElement, ...] = ()

    @model_validator(mode="after")
    def _of_all_groups(self) -> "CutPlaces":
        cut = {axis.group for constant in self.constants for axis in constant.axes}
        others = {own.group for own in self.activations} | {own.group for own in self.shapes}
        if unknown := (cut | others) - set(range(len(self.units))):
            raise ValueError(f"there is no group {min(unknown)}")
        if whole := set(range(len(self.units))) - cut:
            raise ValueError(f"group {min(whole)} has no constant")
        return self

"""The inputs and outputs of the file that a package was ported from.

LiteRT has channels last, packages have the batch first, and both have their own rules for names.
`source.json` records what a network read from ONNX had, so that it can be exported in the same form.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from mistify.package.opened import Package
from mistify.package.records import Record, parse_record

__all__ = ["SOURCE", "SourceInterface", "SourceTensor"]

SOURCE_FORMAT: Final = 1

SOURCE: Final = "source.json"


def _permutation(axes: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(axes) != list(range(len(axes))):
        raise ValueError(f"{list(axes)} are not all axes of a tensor")
    return axes


class SourceTensor(Record):
    """An input or output.

    Attributes:
        name: Its name in the package.
        source: Its name in the source.
        axes: For each axis in the source, the axis of the package's tensor that it became.
        dtype: The type in the source.
    """

    name: str
    source: Annotated[str, Field(min_length=1)]
    axes: Annotated[tuple[int, ...], AfterValidator(_permutation)]
    dtype: Literal[
        "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"
    ]

    @property
    def channels_first(self) -> bool:
        """True if the package has channels last in their place."""
        rank = len(self.axes)
        return rank > 2 and self.axes == (0, rank - 1, *range(1, rank - 1))


class SourceInterface(Record):
    """The content of `source.json`.

    Attributes:
        format_version: The version of this file's format.
        inputs: The inputs in the order of the source.
        outputs: The outputs in the order of the source.
    """

    format_version: Literal[1] = SOURCE_FORMAT
    inputs: tuple[SourceTensor, ...]
    outputs: tuple[SourceTensor, ...]

    @model_validator(mode="after")
    def _check_names(self) -> "SourceInterface":
        for names in (self._names("name"), self._names("source")):
            if repeated := [name for number, name in enumerate(names) if name in names[:number]]:
                raise ValueError(f"several tensors are named {repeated[0]}")
        return self

    @classmethod
    def of(cls, package: Package) -> "SourceInterface | None":
        """Return the interface of a package's source; None if the package does not record it.

        Raises:
            MistifyError: CORRUPT_PACKAGE with every problem in `source.json`.
        """
        if SOURCE not in package.manifest.files:
            return None
        return parse_record(package.directory / SOURCE, package.read(SOURCE), cls, SOURCE_FORMAT)

    def tensors(self) -> Iterable[SourceTensor]:
        """Return the inputs and then the outputs."""
        return (*self.inputs, *self.outputs)

    def _names(self, field: str) -> list[str]:
        return [getattr(tensor, field) for tensor in self.tensors()]

"""The folded batch norms of a package, by which devices adapt it to their data without labels.

Two files of a package describe them: `adaptation.json`, and `statistics.safetensors` with the numbers.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.cut_places import Number
from mistify.package.opened import Package
from mistify.package.records import Record, Sha256, corrupt_package, parse_record
from mistify.package.training import OutputEncoding

__all__ = ["ADAPTATION", "STATISTICS", "AdaptationStore", "FoldedNorm"]

ADAPTATION_FORMAT: Final = 1

ADAPTATION: Final = "adaptation.json"
STATISTICS: Final = "statistics.safetensors"

#: The shift from which a device adapts a package, and that below which it restores the shipped network. A
#: single class of the validation data moves the statistics by 1.
INSTALL_AT: Final = 1.5
RESTORE_BELOW: Final = 1.0

#: The arrays in `statistics.safetensors`, each float32 [channels of all norms].
ARRAYS: Final = ("gamma", "beta", "epsilon", "mean", "variance")

Arrays = Mapping[str, npt.NDArray[np.float32]]


class FoldedNorm(Record):
    """A batch norm that was folded into a linear operator.

    Attributes:
        name: The layer of the operator.
        channels: The number of its channels.
        operators: Number of the graph and of the operator in it, for each graph of `serve.tflite`.
        variance_move: The farthest that streams of a single class move its variances: the mean |log ratio|.
        mean_move: The farthest that they move its means, in standard deviations.
    """

    name: str
    channels: Annotated[int, Field(ge=1)]
    operators: Annotated[tuple[tuple[Number, Number], ...], Field(min_length=1)]
    variance_move: Annotated[float, Field(gt=0)]
    mean_move: Annotated[float, Field(gt=0)]


class AdaptationStore(Record):
    """The content of `adaptation.json`.

    Attributes:
        format_version: The version of this file's format.
        norms: The norms, in the order of the numbers in `statistics.safetensors`.
        output: The output whose classes balance the examples.
        kind: The form of its values, such as logits.
        classes: The number of its classes.
        adapted_from: SHA-256 of the `serve.tflite` that a device has adapted; None in packages as shipped.
    """

    format_version: Literal[1] = ADAPTATION_FORMAT
    norms: Annotated[tuple[FoldedNorm, ...], Field(min_length=1)]
    output: str
    kind: OutputEncoding
    classes: Annotated[int, Field(ge=2)]
    adapted_from: Sha256 | None = None

    @classmethod
    def of(cls, package: Package) -> "AdaptationStore":
        """Return the description of a package's folded norms.

        Raises:
            MistifyError: NOT_FOUND, the package has none; STORE_VERSION, a newer version of Mistify wrote it;
                CORRUPT_PACKAGE, it is damaged, with every problem in it.
        """
        if ADAPTATION not in package.manifest.files:
            if package.manifest.tuned_from is not None:
                raise MistifyError(
                    ErrorCode.NOT_FOUND,
                    f"{package.directory} cannot be adapted to data without labels: it was tuned on this "
                    "device, and the statistics of its batch norms are not known",
                )
            note = f" ({package.manifest.note})" if package.manifest.note else ""
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f"{package.directory} cannot be adapted to data without labels{note}: port the goal with "
                '"tuning": {"adaptation": true} in the config, and without int8',
            )
        return parse_record(package.directory / ADAPTATION, package.read(ADAPTATION), cls, ADAPTATION_FORMAT)

    def as_json(self) -> bytes:
        """Return the content of `adaptation.json`."""
        return (self.model_dump_json() + "\n").encode()

    def read_statistics(self, package: Package) -> Arrays:
        """Return the arrays of `ARRAYS` by name.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file is damaged, or does not fit the norms.
        """
        channels = sum(norm.channels for norm in self.norms)
        try:
            arrays: Arrays = load(package.read(STATISTICS))
        except SafetensorError as error:
            raise _damaged(package, f"a file that cannot be read ({error})") from error
        if set(arrays) != set(ARRAYS) or any(array.shape != (channels,) for array in arrays.values()):
            raise _damaged(package, f"arrays that are not {', '.join(ARRAYS)} of {channels} channels")
        return arrays


def written_statistics(arrays: Arrays) -> bytes:
    """Return the content of `statistics.safetensors`."""
    content: bytes = save({name: np.ascontiguousarray(arrays[name], np.float32) for name in ARRAYS})
    return content


def _damaged(package: Package, content: Any) -> MistifyError:
    problem = Problem(
        str(package.directory / STATISTICS), content, "the numbers of folded norms", "fetch the package again"
    )
    return corrupt_package(package.directory, [problem])

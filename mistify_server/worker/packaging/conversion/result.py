"""The result of a conversion: networks in LiteRT, with their originals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mistify.package.manifest import TunableTensor
from mistify.package.training import Training
from mistify_server.worker.description.description import Description
from mistify_server.worker.packaging.conversion.branches import Branches
from mistify_server.worker.packaging.tflite.runner import Array, Arrays

#: A network before its conversion: computes outputs from inputs, both [batch, ...] by name.
Original: TypeAlias = Callable[[Arrays], dict[str, Array]]


@dataclass(frozen=True)
class ConvertedNetworks:
    """The networks of a package.

    Attributes:
        serve: Content of `serve.tflite`.
        train: Content of `train.tflite`; None if the network cannot be trained in LiteRT.
        training: Describes `train`; None without it.
        note: Reason why `train` is missing, or trains less than was asked for.
        tunable: Name -> weight that a device can tune.
    """

    serve: bytes
    train: bytes | None = None
    training: Training | None = None
    note: str = ""
    tunable: Mapping[str, TunableTensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Conversion:
    """A network that was converted, with all that its package is compared with and described by.

    Attributes:
        networks: The networks in LiteRT, at the precision of the package.
        inputs: Names of its inputs, in order.
        outputs: Names of its outputs, in order.
        originals: The network before its conversion; for a package with branches, each branch's.
        float32: Converts the same network in float32.
        accuracy: Accuracy of the network before its conversion, on the validation data.
        note: A remark on the network for the manifest; may be empty.
        description: Describes inputs and outputs for apps.
        branches: The networks between which it can switch; None where it cannot.
        other_files: Name -> content of further files of the package.
        layers: Names of its layers; empty where it has none.
    """

    networks: ConvertedNetworks
    inputs: Sequence[str]
    outputs: Sequence[str]
    originals: Sequence[Original]
    float32: Callable[[], bytes]
    accuracy: float
    note: str = ""
    description: Description = field(default_factory=Description)
    branches: Branches | None = None
    other_files: Mapping[str, bytes] = field(default_factory=dict)
    layers: Sequence[str] = ()

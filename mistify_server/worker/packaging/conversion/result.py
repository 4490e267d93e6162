"""The result of a conversion: LiteRT networks with their originals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mistify.package.manifest import TunableTensor
from mistify.package.training import Training
from mistify_server.worker.description.description import Description
from mistify_server.worker.packaging.conversion.branches import Branches
from mistify_server.worker.packaging.tflite.runner import Array, Arrays

#: A network before conversion: computes outputs from inputs, both [batch, ...] by name.
Original: TypeAlias = Callable[[Arrays], dict[str, Array]]


@dataclass(frozen=True)
class ConvertedNetworks:
    """The networks of a package.

    Attributes:
        serve: Content of `serve.tflite`.
        train: Content of `train.tflite`; None if the network cannot be trained in LiteRT.
        training: Description of `train`; None without it.
        note: Reason why `train` is missing or trains less than requested.
        tunable: Name -> weight that a device can tune.
    """

    serve: bytes
    train: bytes | None = None
    training: Training | None = None
    note: str = ""
    tunable: Mapping[str, TunableTensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Conversion:
    """A converted network, with everything needed for comparing and describing its package.

    Attributes:
        networks: The LiteRT networks at the precision of the package.
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs, in order.
        originals: The network before conversion; for a package with branches, one per branch.
        float32: Converts the same network in float32.
        accuracy: Accuracy of the network before conversion, on the validation data.
        note: A remark on the network for the manifest; may be empty.
        description: Description of inputs and outputs for apps.
        branches: The networks that it can switch between; None without branches.
        other_files: Name -> content of additional package files.
        layers: Names of the layers; empty without layers.
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

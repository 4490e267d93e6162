"""The precisions of a package, and their sizes in bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = ["Quantization"]


@dataclass(frozen=True)
class Storage:
    """Bytes of a precision in a package and at run time.

    Attributes:
        weight: Per element of a kernel.
        bias: Per element of a bias.
        activation: Per element of a tensor that is alive while the network runs.
        channel: For the scale and zero point of each output channel of a kernel that is not float32.
        frame: For a file without operators.
        weighted: For the names, shapes and options of an operator with weights and its tensors, in the graphs
            for any batch and for batch 1.
        plain: The same for an operator without weights.
        repeated: The same for an operator that repeats another and shares its constants.
        flatten: The same for the four operators that flatten tensors of any batch size to vectors.
        least_kernel: Kernels with fewer elements stay float32.
    """

    weight: int
    bias: int
    activation: int
    channel: int
    frame: int
    weighted: int
    plain: int
    repeated: int
    flatten: int
    least_kernel: int = 0


class Quantization(StrEnum):
    """The precision that a package computes with.

    `none` is float32. `float16` stores weights as float16 and computes in float32. `dynamic` stores weights
    as int8 and computes the scales of activations at run time. `int8` uses integers throughout, with scales
    calibrated on training data; `int8-qat` is the same after quantization-aware training. `auto`, in configs
    only, leaves the choice to the server.
    """

    NONE = "none"
    FLOAT16 = "float16"
    DYNAMIC = "dynamic"
    INT8 = "int8"
    INT8_QAT = "int8-qat"
    AUTO = "auto"

    @property
    def stored_as(self) -> "Quantization":
        """The precision of the same size: `int8` for `int8-qat`, `none` for `auto`."""
        return _STORED_AS.get(self, self)

    @property
    def integer(self) -> bool:
        """True if activations are integers as well."""
        return self.stored_as is Quantization.INT8

    @property
    def storage(self) -> Storage:
        """The bytes of this precision."""
        return _STORAGE[self.stored_as]


# Fitted to the files of 60 networks with one to twenty layers and 27 to 16,000 weights: MLPs, ResNets and
# MobileNets, and layers of all kinds. Each float16 weight tensor needs an operator that dequantizes it.
# Repeated operators and channels were measured on larger networks.
_STORAGE: Mapping[Quantization, Storage] = MappingProxyType(
    {
        Quantization.NONE: Storage(
            weight=4, bias=4, activation=4,
            channel=0, frame=845, weighted=452, plain=240, repeated=167, flatten=1_350,
        ),
        Quantization.FLOAT16: Storage(
            weight=2, bias=2, activation=4,
            channel=0, frame=873, weighted=705, plain=238, repeated=167, flatten=1_310,
        ),
        Quantization.DYNAMIC: Storage(
            weight=1, bias=4, activation=4,
            channel=12, frame=851, weighted=456, plain=239, repeated=172, flatten=1_340, least_kernel=1_024,
        ),
        Quantization.INT8: Storage(
            weight=1, bias=4, activation=1,
            channel=24, frame=1_195, weighted=541, plain=279, repeated=259, flatten=1_380,
        ),
    }
)  # fmt: skip

_STORED_AS: Mapping[Quantization, Quantization] = MappingProxyType(
    {Quantization.INT8_QAT: Quantization.INT8, Quantization.AUTO: Quantization.NONE}
)

#: The precisions that a package can have.
PRECISIONS = tuple(precision for precision in Quantization if precision is not Quantization.AUTO)

#: The precisions with different sizes in bytes.
STORED = tuple(_STORAGE)

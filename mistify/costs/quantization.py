"""The precisions of a package, and the bytes that each takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


@dataclass(frozen=True)
class Storage:
    """Bytes in a package and while it runs.

    Attributes:
        weight: Of an element of a kernel.
        bias: Of an element of a bias.
        activation: Of an element of a tensor that is alive while the network runs.
        channel: Of the scales and zero points of one output channel.
        operator: Of the names, shapes and options of a layer's first operator and its tensors, in the graphs
            for any batch and for batch 1.
        further: The same of each further one, which shares its constants with others.
        least_kernel: Kernels with fewer elements stay float32.
    """

    weight: int
    bias: int
    activation: int
    channel: int
    operator: int
    further: int
    least_kernel: int = 0


class Quantization(StrEnum):
    """The precision that a package computes with.

    `none` is float32. `float16` stores weights as float16 and computes in float32. `dynamic` stores weights
    as int8 and finds the scale of activations while it runs. `int8` is all integers, with scales from
    training data; `int8-qat` is the same after training that imitates it. `auto`, in configs alone, leaves
    the choice to the server.
    """

    NONE = "none"
    FLOAT16 = "float16"
    DYNAMIC = "dynamic"
    INT8 = "int8"
    INT8_QAT = "int8-qat"
    AUTO = "auto"

    @property
    def stored_as(self) -> "Quantization":
        """The precision with the same bytes: `int8` for `int8-qat`; `none` as long as none is chosen."""
        return _STORED_AS.get(self, self)

    @property
    def integer(self) -> bool:
        """True if activations are integers as well."""
        return self.stored_as is Quantization.INT8

    @property
    def storage(self) -> Storage:
        """The bytes that it takes."""
        return _STORAGE[self.stored_as]


# Operators and channels as measured on converted ResNets and MobileNets of 1,300 to 250,000 weights. Float16
# weights need an operator each that dequantizes them. Further operators as measured on LSTMs, GRUs and simple
# RNNs of 6 and 16 steps.
_STORAGE: Mapping[Quantization, Storage] = MappingProxyType(
    {
        Quantization.NONE: Storage(weight=4, bias=4, activation=4, channel=0, operator=318, further=167),
        Quantization.FLOAT16: Storage(weight=2, bias=2, activation=4, channel=0, operator=488, further=167),
        Quantization.DYNAMIC: Storage(
            weight=1, bias=4, activation=4, channel=12, operator=338, further=172, least_kernel=1024
        ),
        Quantization.INT8: Storage(weight=1, bias=4, activation=1, channel=24, operator=426, further=259),
    }
)

_STORED_AS: Mapping[Quantization, Quantization] = MappingProxyType(
    {Quantization.INT8_QAT: Quantization.INT8, Quantization.AUTO: Quantization.NONE}
)

#: The precisions that a package can have.
PRECISIONS = tuple(precision for precision in Quantization if precision is not Quantization.AUTO)

#: The precisions that differ in bytes.
STORED = tuple(_STORAGE)

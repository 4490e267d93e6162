"""Types of the entries of tensors, in ONNX and in Keras."""

from collections.abc import Mapping
from typing import Final

from onnx import TensorProto

_INTEGERS: Final = (
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
)

#: Type in ONNX -> type in Keras, for inputs of networks.
KERAS_TYPES: Final[Mapping[int, str]] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float32",
    **dict.fromkeys(_INTEGERS, "int32"),
}

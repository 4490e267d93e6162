"""Types of tensors in ONNX."""

import numpy as np
from onnx import helper


def onnx_type(name: str) -> int:
    """Return ONNX's number of a type, given its name in NumPy."""
    number: int = helper.np_dtype_to_tensor_dtype(np.dtype(name))
    return number

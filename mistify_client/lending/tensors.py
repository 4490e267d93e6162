"""The tensors of an inference as messages; their types and shapes are those of the block store."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import TensorInfo
from mistify.package.rounding import RoundedTensor
from mistify.v1 import lending_pb2 as pb
from mistify.wording import counted
from mistify_client.assembly.executions import Array, Tensors

#: Numbers that are looked at first.
_SAMPLE = 256

#: Largest number of bytes of a message besides the content of its tensors.
MESSAGE_BYTES = 4096


def bytes_of(tensors: Sequence[TensorInfo]) -> int:
    """Return the size of some tensors for one example, in bytes."""
    return sum(tensor.example_bytes for tensor in tensors)


def zeros_of(tensors: Sequence[TensorInfo]) -> dict[str, Array]:
    """Return zeros for one example, by name."""
    return {tensor.name: np.zeros(tensor.example_shape, tensor.dtype) for tensor in tensors}


def in_bytes(array: Array) -> Array | None:
    """Return numbers as bytes; None unless all are integers from 0 to 255, such as those of an image."""
    for values in (array.reshape(-1)[:_SAMPLE], array):  # most others show it at once
        with np.errstate(invalid="ignore"):
            narrow = values.astype(np.uint8)
        if not np.array_equal(narrow, values):
            return None
    return narrow


def sent_bytes(inputs: Tensors) -> int:
    """Return the number of bytes in which the inputs of a network can be sent."""
    return sum(array.size if in_bytes(array) is not None else array.nbytes for array in inputs.values())


def message_of(array: Array) -> pb.TensorContent:
    """Return the content of an array as a message, in its own precision."""
    return _message(array)


def narrow_message_of(array: Array) -> pb.TensorContent:
    """Return the content of an array as a message, in bytes if nothing is lost."""
    narrow = in_bytes(array) if array.dtype.itemsize > 1 else None
    return _message(array) if narrow is None else _message(narrow, in_bytes=True)


def rounded_message_of(array: Array) -> pb.TensorContent:
    """Return the content of an array in float32 as a message, rounded to bytes if it is finite."""
    sent = RoundedTensor.of(array)
    if sent is None:
        return _message(array)
    return _message(sent.steps, rounding=pb.Rounding(step=sent.step, least=sent.least))


def _message(array: Array, **encoding: Any) -> pb.TensorContent:
    content = np.ascontiguousarray(array).tobytes()
    return pb.TensorContent(content=content, crc32=zlib.crc32(content), **encoding)


def checked_contents(messages: Sequence[pb.TensorContent], tensors: Sequence[TensorInfo]) -> list[bytes]:
    """Return the bytes of each tensor.

    Args:
        messages: The messages of the other device.
        tensors: The expected tensors, for one example.

    Raises:
        MistifyError: INVALID_DATASET, naming the tensor that is missing, damaged or of another size.
    """
    if len(messages) != len(tensors):
        raise _wrong(f"got {counted(len(messages), 'tensor')}; expected {len(tensors)}")
    return [_checked(message, tensor) for message, tensor in zip(messages, tensors, strict=True)]


def arrays_of(contents: Sequence[bytes | memoryview], tensors: Sequence[TensorInfo]) -> dict[str, Array]:
    """Return arrays by name, which share the memory of their contents.

    Args:
        contents: The bytes of each tensor, for one example.
    """
    return {
        tensor.name: np.frombuffer(content, tensor.dtype).reshape(tensor.example_shape)
        for content, tensor in zip(contents, tensors, strict=True)
    }


def _checked(message: pb.TensorContent, tensor: TensorInfo) -> bytes:
    expected, is_rounded = tensor.example_bytes, message.HasField("rounding")
    if message.in_bytes or is_rounded:
        expected //= np.dtype(tensor.dtype).itemsize
    if expected != len(message.content):
        raise _wrong(f"{tensor.name} has {counted(len(message.content), 'byte')}; expected {expected}")
    if zlib.crc32(message.content) != message.crc32:
        raise _wrong(f"{tensor.name} was damaged on the way: its CRC-32 differs")
    if not message.in_bytes and not is_rounded:
        return message.content
    numbers = np.frombuffer(message.content, np.uint8)
    if not is_rounded:
        return numbers.astype(tensor.dtype).tobytes()
    if tensor.dtype != "float32":
        raise _wrong(f"{tensor.name} is rounded, but it is {tensor.dtype}; only float32 can be")
    sent = RoundedTensor(numbers, message.rounding.step, message.rounding.least)
    if not sent.is_finite:
        raise _wrong(f"{tensor.name} is rounded from {sent.least} on in steps of {sent.step}: not finite")
    return sent.restored().tobytes()


def _wrong(message: str) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_DATASET, message)

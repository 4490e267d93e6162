"""The memory of a converted network; LiteRT computes the shapes that its file leaves open (paper 4.1)."""

from collections.abc import Collection

from mistify.tflite import memory
from mistify_server.worker.packaging.tflite.runner import Example


def memory_bytes(network: bytes, only: Collection[str] = ()) -> float:
    """Return the bytes of constants and of tensors alive at once, as `mistify.tflite.memory` counts them.

    Args:
        network: A `.tflite`.
        only: Signatures that count, of those for any batch; all where none are named.
    """
    return memory.memory_bytes(
        network, only, lambda signature, graph: Example(network, signature, graph).shapes()
    )

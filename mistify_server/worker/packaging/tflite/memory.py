"""The memory of a converted network; LiteRT computes the shapes that its file leaves open (paper 4.1)."""

from collections.abc import Collection
from functools import lru_cache

from mistify.tflite import memory
from mistify_server.worker.packaging.tflite.runner import Example


def memory_bytes(network: bytes, only: Collection[str] = ()) -> float:
    """Return the size of constants plus the peak size of live tensors, as in `mistify.tflite.memory`.

    Args:
        network: A `.tflite`.
        only: Signatures to include, among those for any batch; all if empty.
    """
    return _memory_bytes(network, tuple(only))


@lru_cache(maxsize=1)  # a package is measured, and its costs are listed
def _memory_bytes(network: bytes, only: tuple[str, ...]) -> float:
    return memory.memory_bytes(
        network, only, lambda signature, graph: Example(network, signature, graph).shapes()
    )

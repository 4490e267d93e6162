"""Splitting of a network into one file per signature."""

from typing import Any

from mistify.tflite.combining import CombinedNetwork, names_of
from mistify_server.worker.packaging.tflite.runner import SIGNATURE


def split_by_signature(network: Any) -> dict[str, bytes]:
    """Return the graph of each signature as a separate network, by signature name.

    Args:
        network: A network from `read_network`.

    Raises:
        ValueError: A graph calls others or holds state.
    """
    return {
        signature.signatureKey.decode(): _alone(network, signature) for signature in network.signatureDefs
    }


def _alone(network: Any, signature: Any) -> bytes:
    alone = CombinedNetwork()
    parts = alone.parts_of(network, network.subgraphs[signature.subgraphIndex])
    alone.add(SIGNATURE, *parts, names_of(signature.inputs), names_of(signature.outputs))
    return alone.packed()

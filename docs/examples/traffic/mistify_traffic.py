"""The memory traffic of an inference: the bytes that it reads and writes.

Every weight is read once; every activation is written once and read once. It is an upper bound for processors
whose caches keep neither weights nor activations.
"""

from mistify.costs.axes import Axis, Condition
from mistify.costs.network import NetworkCost
from mistify.parsing.quantities import BYTES


def traffic_bytes(network: NetworkCost, at: Condition) -> float:
    """Return the bytes that one inference at batch 1 reads and writes."""
    written = sum(network.elements[layer.output] for layer in network.layers if not layer.in_place)
    return network.weight_bytes(at.precision) + 2 * at.precision.storage.activation * written


TRAFFIC = Axis(
    key="traffic",
    quantity="traffic_bytes",
    label="memory traffic",
    kind=BYTES,
    cost=traffic_bytes,
    by_precision=True,
)

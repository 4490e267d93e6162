"""The channels of a package's operators beside those of the source's layers."""

from collections.abc import Mapping
from typing import NamedTuple

from mistify.jobs.details import GoalDetails, LayerChange
from mistify.jobs.network_graph import GraphNode


class Channels(NamedTuple):
    """The number of output channels of a layer in a goal's network, and in the tuned source."""

    kept: int
    before: int


def kept_channels(details: GoalDetails) -> Mapping[int, Channels]:
    """Return the channels of the operators with weights, by position of the node; empty if unknown."""
    if details.graph is None or details.layers is None:
        return {}
    changes = {layer.name: layer for layer in details.layers.layers}
    changed = ((position, _channels(node, changes)) for position, node in enumerate(details.graph.nodes))
    return {position: channels for position, channels in changed if channels is not None}


def _channels(node: GraphNode, changes: Mapping[str, LayerChange]) -> Channels | None:
    """Return the channels of a node that writes the output of its layer."""
    change = changes.get(node.layer)
    if change is None or change.before is None or change.after is None or not node.weights:
        return None
    is_whole = node.shape[-1:] == (change.after.width,)
    return Channels(change.after.width, change.before.width) if is_whole else None

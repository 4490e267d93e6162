"""Selection of shared subnet prefixes to compute once: a tree within a memory limit (AdaptiveNet 5.2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mistify.package.blocks import BlockVariant
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.space import Subnet

#: The first blocks of a subnet.
Prefix: TypeAlias = tuple[BlockVariant, ...]


@dataclass
class PrefixNode:
    """A node in a tree of subnets: blocks, and the nodes that continue from their output.

    Attributes:
        blocks: The blocks after the parent's output.
        subnet: Index of the subnet that ends here; None for inner nodes.
    """

    blocks: tuple[BlockVariant, ...]
    subnet: int | None = None
    children: list["PrefixNode"] = field(default_factory=list)

    def runs(self) -> Iterator[BlockVariant]:
        """Yield the blocks of the tree in execution order, depth first."""
        yield from self.blocks
        for node in self.children:
            yield from node.runs()


def tree_of(
    subnets: Sequence[Subnet], table: LatencyTable, feature_bytes: Mapping[int, int], limit_bytes: int
) -> PrefixNode:
    """Return a tree of subnets in which the most important shared prefixes are computed once.

    A prefix is more important the longer it takes and the more subnets share it. Along each subnet, the
    stored features together stay within the limit.

    Args:
        subnets: Subnets without duplicates.
        table: The latencies of their blocks.
        feature_bytes: Position -> bytes of the feature there.
        limit_bytes: Limit on the bytes of all features stored at a time.
    """
    sharing = _sharing(subnets)
    left = dict.fromkeys(subnets, limit_bytes)
    kept: set[Prefix] = set()
    for prefix in sorted(sharing, key=_importance(table, sharing), reverse=True):
        size = feature_bytes[prefix[-1].end]
        if all(left[subnet] >= size for subnet in sharing[prefix]):
            kept.add(prefix)
            for subnet in sharing[prefix]:
                left[subnet] -= size
    return _tree(subnets, kept)


def _sharing(subnets: Sequence[Subnet]) -> dict[Prefix, list[Subnet]]:
    """Return the subnets that share each prefix, for prefixes after which they diverge."""
    beginning: dict[Prefix, list[Subnet]] = {}
    for subnet in subnets:
        for length in range(1, len(subnet)):
            beginning.setdefault(subnet[:length], []).append(subnet)
    return {
        prefix: sharing
        for prefix, sharing in beginning.items()
        if len({subnet[len(prefix)] for subnet in sharing}) > 1
    }


def _importance(table: LatencyTable, sharing: Mapping[Prefix, Sequence[Subnet]]) -> Callable[[Prefix], float]:
    return lambda prefix: table.latency_ms(prefix) * len(sharing[prefix])


def _tree(subnets: Sequence[Subnet], kept: set[Prefix]) -> PrefixNode:
    root = PrefixNode(())
    nodes: dict[Prefix, PrefixNode] = {}
    for number in sorted(range(len(subnets)), key=lambda number: [one.file for one in subnets[number]]):
        subnet = subnets[number]  # subnets with the same first blocks are adjacent
        parent, behind = root, 0
        for length in (length for length in range(1, len(subnet)) if subnet[:length] in kept):
            prefix = subnet[:length]
            if prefix not in nodes:
                nodes[prefix] = PrefixNode(subnet[behind:length])
                parent.children.append(nodes[prefix])
            parent, behind = nodes[prefix], length
        parent.children.append(PrefixNode(subnet[behind:], number))
    return root

"""The expected time of a batch, as planned or for the rest of its work."""

from collections.abc import Mapping

from mistify_server.store.plans import BatchPlan


def batch_seconds(
    plan: BatchPlan,
    source: float,
    preparations: Mapping[str, float],
    nodes: Mapping[int, float],
    slots: int,
) -> float:
    """Return the expected seconds of a batch: limited by its longest path, or by the number of workers.

    Args:
        plan: The plan with the goal tree.
        source: Seconds for the source.
        preparations: Name (`BatchPlan.preparation_of`) -> seconds; without those that need no time.
        nodes: Index of each node -> seconds, including the packages of its goals.
        slots: Number of tasks that run at the same time.
    """
    ends: dict[int | None, float] = {None: 0.0}
    for node in plan.nodes:
        start = max(ends[node.parent], preparations.get(plan.preparation_of(node), 0.0))
        ends[node.index] = start + nodes[node.index]
    whole = sum(nodes.values()) + sum(preparations.values())
    return source + max(*ends.values(), whole / slots)

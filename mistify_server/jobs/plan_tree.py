"""The goal tree of a batch's plan."""

from mistify_server.store.plans import BatchPlan, NodePlan


class PlanTree:
    """The nodes of a plan by index, rank and parent.

    Attributes:
        nodes: Index of a node -> the node.
        rank: Index of a node -> its turn: nodes above long paths come first, because the last goal of such a
            path decides when all are done if there are enough workers. So parents come before children.
        children: Index of a node, or None for the root -> the nodes adapted from it.
    """

    def __init__(self, plan: BatchPlan) -> None:
        self.nodes = {node.index: node for node in plan.nodes}
        self.children: dict[int | None, list[NodePlan]] = {}
        for node in plan.nodes:
            self.children.setdefault(node.parent, []).append(node)
        below: dict[int, int] = {}  # the number of nodes on the longest path
        for index in reversed(self.nodes):
            below[index] = max((1 + below[child.index] for child in self.children.get(index, ())), default=0)
        turns = sorted(self.nodes, key=lambda index: -below[index])
        self.rank = {index: turn for turn, index in enumerate(turns)}

    def subtree(self, *indices: int) -> list[NodePlan]:
        """Return nodes with all their descendants, each once and parents first."""
        nodes = {index: self.nodes[index] for index in indices}
        queue = list(nodes.values())
        for node in queue:  # grows during the iteration
            new = [child for child in self.children.get(node.index, ()) if child.index not in nodes]
            nodes |= {child.index: child for child in new}
            queue += new
        return queue

"""Goals as budgets in a partial order, and the tree of their adaptation (paper 4.3)."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mistify.costs.budget import Budget
from mistify.jobs.dominance import Floats, Indices, log_sums, nearest_looser

_NO_PARENT: Final = -1


class GoalTree:
    """The tree of goals: each goal is adapted from its parent.

    A budget is looser than another if it is at least as large on every axis and larger on one. An axis
    without a limit is unlimited, inf. (Comparing two goals only on the axes that both limit would not be
    transitive, and so no order.) Goals with equal budgets share a node.

    The parent of a node is its nearest looser node, from which the least adaptation remains: the one with the
    smallest sum of log-ratios over the axes, and the lowest index in a tie. Only in this distance, inf counts
    as the largest finite limit on the axis. Nodes without a looser node are roots; they are adapted from the
    expanded source model.

    Nodes are numbered 0, 1, ... in the order in which their budgets first appear. After any number of
    `insert`s, the tree equals the one that `build` makes of the same goals in the same order.

    Example:
        >>> tree = GoalTree.build([{"flops": 8.0}, {"flops": 2.0}, {"flops": 4.0}])
        >>> tree.paths()
        [[0, 2, 1]]
    """

    def __init__(self, axes: Sequence[str] = ()) -> None:
        self.axes = tuple(axes)
        self._goal_nodes: list[int] = []
        self._node_of_budget: dict[bytes, int] = {}
        self._count = 0
        self._limits: Floats = np.empty((len(self.axes), 0))
        self._largest: Floats = np.zeros(len(self.axes))
        self._unlimited: NDArray[np.bool_] = np.zeros(len(self.axes), dtype=bool)
        self._sums: Floats = np.empty(0)
        self._parents: Indices = np.empty(0, dtype=np.int64)
        self._parent_sums: Floats = np.empty(0)

    @classmethod
    def build(cls, budgets: ArrayLike | Sequence[Budget], axes: Sequence[str] | None = None) -> "GoalTree":
        """Build the tree of goals.

        Args:
            budgets: Limits as an array [goals, axes], inf for no limit, or for each goal a mapping from axis
                to limit.
            axes: The names of the axes; by default, those of the mappings in order of appearance, or "0",
                "1", ...

        Raises:
            ValueError: A limit is not above 0, the shape does not fit the axes, or a mapping has an axis that
                is not in `axes`.
        """
        table, names = _table(budgets, axes)
        tree = cls(names)
        for row in table:
            node = tree._node_of_budget.setdefault(row.tobytes(), len(tree._node_of_budget))
            tree._goal_nodes.append(node)
        tree._count = len(tree._node_of_budget)
        nodes = np.array(tree._goal_nodes, dtype=np.int64)
        tree._limits = np.empty((len(names), tree._count))
        tree._limits[:, nodes] = table.T
        tree._link()
        return tree

    def insert(self, budget: Budget | ArrayLike) -> int:
        """Add a goal; its node becomes the parent of nodes for which it is now the nearest looser one.

        Args:
            budget: A mapping from axis to limit, possibly with new axes, or an array [axes] of limits.

        Returns:
            The node of the goal; an existing node if it has the same budget.

        Raises:
            ValueError: A limit is not above 0, or an array does not have one limit for each axis.
        """
        if isinstance(budget, Mapping):
            _checked(np.array(list(budget.values()), dtype=np.float64), (len(budget),))
            self._add_axes([axis for axis in budget if axis not in self.axes])
            budget = [budget.get(axis, np.inf) for axis in self.axes]
        row = _checked(np.asarray(budget, dtype=np.float64), (len(self.axes),))
        node = self._node_of_budget.setdefault(row.tobytes(), self._count)
        if node == self._count:
            self._add(row)
        self._goal_nodes.append(node)
        return node

    def node_of(self, goal: int) -> int:
        """Return the node of a goal, by the goal's index in `build` and the later `insert`s."""
        return self._goal_nodes[goal]

    def parent(self, node: int) -> int | None:
        """Return the nearest looser node; None for a root."""
        self._check(node)
        parent = int(self._parents[node])
        return None if parent == _NO_PARENT else parent

    def children(self, node: int) -> list[int]:
        """Return the nodes with this parent, ascending."""
        self._check(node)
        return self._below(node)

    @property
    def roots(self) -> list[int]:
        """The nodes without a looser node, ascending."""
        return self._below(_NO_PARENT)

    def paths(self) -> list[list[int]]:
        """Return the adaptation paths: the nodes from a root to each leaf, loosest first."""
        children = self._all_children()
        paths = []
        path: list[int] = []
        for node in self.order():
            parent = self.parent(node)
            while path and path[-1] != parent:
                path.pop()
            path.append(node)
            if not children[node]:
                paths.append(path.copy())
        return paths

    def order(self) -> list[int]:
        """Return all nodes depth first, each parent before its children."""
        children = self._all_children()
        order = []
        waiting = self.roots[::-1]
        while waiting:
            node = waiting.pop()
            order.append(node)
            waiting.extend(reversed(children[node]))
        return order

    def __len__(self) -> int:
        return self._count

    def _check(self, node: int) -> None:
        if not 0 <= node < self._count:
            raise IndexError(f"node {node} is not in the tree: it has {self._count} nodes, numbered from 0")

    def _below(self, parent: int) -> list[int]:
        return [int(node) for node in np.flatnonzero(self._parents[: self._count] == parent)]

    def _all_children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in range(self._count)]
        for node, parent in enumerate(self._parents[: self._count].tolist()):
            if parent != _NO_PARENT:
                children[parent].append(node)
        return children

    def _stand_ins(self) -> Floats:
        """Return the values used instead of inf in distances, [axes]."""
        return np.where(self._largest > 0, self._largest, 1.0)

    def _link(self) -> None:
        """Recompute all parents."""
        limits = self._limits[:, : self._count]
        finite = np.isfinite(limits)
        self._largest = np.where(finite, limits, 0.0).max(axis=1, initial=0.0)
        self._unlimited = np.asarray((~finite).any(axis=1))
        sums = log_sums(limits, self._stand_ins())
        parents = nearest_looser(limits, sums)
        parent_sums = np.where(parents == _NO_PARENT, np.inf, sums[parents]) if self._count else sums
        self._limits, self._sums, self._parents, self._parent_sums = limits, sums, parents, parent_sums

    def _add(self, row: Floats) -> None:
        """Append a node with a new budget."""
        node = self._count
        self._reserve(node + 1)
        self._limits[:, node] = row
        self._count += 1
        finite = np.isfinite(row)
        self._unlimited[~finite] = True
        grows = finite & (row > self._largest)
        if (grows & self._unlimited).any():  # the value used for inf grows, so distances change everywhere
            self._link()
            return
        self._largest[grows] = row[grows]
        limits, column = self._limits[:, :node], row[:, None]
        own_sum = log_sums(column, self._stand_ins())[0]
        looser = np.flatnonzero((limits >= column).all(axis=0))
        parent = looser[self._sums[looser].argmin()] if looser.size else _NO_PARENT
        moved = (limits <= column).all(axis=0) & (own_sum < self._parent_sums[:node])
        self._parents[:node][moved] = node
        self._parent_sums[:node][moved] = own_sum
        self._sums[node] = own_sum
        self._parents[node] = parent
        self._parent_sums[node] = np.inf if parent == _NO_PARENT else self._sums[parent]

    def _reserve(self, count: int) -> None:
        """Reserve memory for `count` nodes; doubling gives insertions amortized constant cost."""
        if count <= self._sums.size:
            return
        more = max(count, 2 * self._sums.size) - self._sums.size
        self._limits = np.pad(self._limits, ((0, 0), (0, more)))
        self._sums = np.pad(self._sums, (0, more))
        self._parents = np.pad(self._parents, (0, more))
        self._parent_sums = np.pad(self._parent_sums, (0, more))

    def _add_axes(self, axes: Sequence[str]) -> None:
        """Add axes on which no node has a limit yet."""
        if not axes:
            return
        self.axes += tuple(axes)
        limits = self._limits[:, : self._count]
        self._limits = np.vstack([limits, np.full((len(axes), self._count), np.inf)])
        self._node_of_budget = {row.tobytes(): node for node, row in enumerate(self._limits.T)}
        self._link()


def _table(budgets: ArrayLike | Sequence[Budget], axes: Sequence[str] | None) -> tuple[Floats, list[str]]:
    """Return the limits [goals, axes] and the names of the axes."""
    if isinstance(budgets, Sequence) and all(isinstance(budget, Mapping) for budget in budgets):
        mappings = cast(Sequence[Budget], budgets)
        named = list(dict.fromkeys(chain.from_iterable(mappings)))
        names = named if axes is None else list(axes)
        if unknown := set(named) - set(names):
            raise ValueError(f"budgets name the axes {sorted(unknown)}, which are not among {names}")
        table = np.full((len(mappings), len(names)), np.inf)
        for row, budget in zip(table, mappings, strict=True):
            row[[names.index(axis) for axis in budget]] = list(budget.values())
    else:
        table = np.array(budgets, dtype=np.float64)
        names = [str(axis) for axis in range(table.shape[-1])] if axes is None else list(axes)
    return _checked(table, (len(table), len(names))), names


def _checked(limits: Floats, shape: tuple[int, ...]) -> Floats:
    if limits.shape != shape:
        raise ValueError(f"got limits of shape {limits.shape}, expected {shape}: one per axis")
    if not (limits > 0).all():
        raise ValueError("limits have to be above 0; use inf for no limit")
    return limits

"""Choice of the algorithm for an edge (paper 3, "automatically selected adaptation algorithm")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Final

from executors.contract.profile import AlgorithmProfile
from mistify.jobs.plan import Estimate
from mistify.wording import counted
from mistify_server.planning.forecast.history import ForecastHistory
from mistify_server.store.edges import EdgeFeatures
from mistify_server.store.plans import NodePlan
from mistify_server.tasks.estimates import NetworkFeatures

#: A share of the source's accuracy that makes no difference, as seeds differ by as much: of algorithms within
#: it the fastest is taken.
_TOLERANCE: Final = 0.005

#: The share that may be lost besides, on average over many goals, by networks that share their training, and
#: the part of the time of the others that they may then take at most. With default settings a path of 32
#: goals takes three times as long as such a training, one of 128 seven times; the digits lose 0.2 to 0.4
#: points by it (docs/decisions/many-goals.md).
_SHARING_TOLERANCE: Final = 0.01
_MUCH_FASTER: Final = 1 / 3


@dataclass(frozen=True)
class Edge:
    """An edge of a goal tree.

    Attributes:
        halvings: Halvings of the multiply-adds from the source to the goal.
        distance: Halvings of the costs between parent and goal.
        share: The parent's multiply-adds over the source's.
        limits_latency: Whether latency is limited, on any hardware.
        has_targets: Whether its network has a target to reach.
        path: Number of edges on the longest path that it is on.
    """

    halvings: float
    distance: float
    share: float
    limits_latency: bool = False
    has_targets: bool = False
    path: int = 1


@dataclass(frozen=True)
class Choice:
    """An algorithm, the reason for it (a part of a sentence), and the share of accuracy it should lose."""

    algorithm: str
    reason: str
    lost: Estimate


@dataclass(frozen=True)
class _Expected:
    """Expected results of an algorithm on an edge.

    Attributes:
        lost: Share of the source's figure.
        time: Training steps of the source that take as long, with the edge's part of preparing.
        preparation: The time of preparing, as a part of a sentence; empty where there is none to come.
    """

    algorithm: str
    lost: Estimate
    time: float
    preparation: str


@dataclass(frozen=True)
class _Comparison:
    """An algorithm whose networks share their training, against what would be chosen for each edge by itself.

    Attributes:
        sharing: Its expected results, one for each edge that it suits.
        others: The expected results of the algorithms that these edges would have otherwise.
    """

    sharing: Sequence[_Expected]
    others: Sequence[_Expected]

    @property
    def sharing_wins(self) -> bool:
        """True if the networks that share their training are better on average, or as good and faster.

        Where they are a little worse, they have to be much faster.
        """
        more = _mean_loss(self.sharing) - _mean_loss(self.others)
        ratio = _time(self.sharing) / _time(self.others)
        if more <= _TOLERANCE:
            return more < -_TOLERANCE or ratio < 1
        return more <= _SHARING_TOLERANCE and ratio < _MUCH_FASTER

    def __str__(self) -> str:
        """Return the means of what was chosen and of what was not, a part of a sentence."""
        chosen, left = self.sharing, self.others
        if not self.sharing_wins:
            chosen, left = left, chosen
        return (
            f"averaged over {counted(len(chosen), 'goal')} {_mean_loss(chosen):z.1%}, compared with "
            f"{_names(left)} {_mean_loss(left):z.1%} in {_time(left) / _time(chosen):.1f} times the time"
        )


class Chooser:
    """Chooses the fastest of the algorithms that are expected to lose least.

    The same edge and the same history give the same choice.

    Args:
        subject: A digest of model and data.
        profiles: Name of an algorithm that can be chosen -> its profile; at least one.
        history: The edges that were adapted, from which losses are predicted.
    """

    def __init__(
        self,
        features: NetworkFeatures,
        subject: str,
        profiles: Mapping[str, AlgorithmProfile],
        history: ForecastHistory,
    ) -> None:
        self._features = features
        self._subject = subject
        self._profiles = profiles
        self._history = history
        self._evidence = history.evidence(subject, features.kind)

    def __call__(self, edges: Sequence[Edge], prepared: Mapping[str, float] | None = None) -> list[Choice]:
        """Choose the algorithms of edges that share the time for which an algorithm prepares.

        An algorithm whose networks share their training is chosen for all edges that it suits, if it loses as
        little on average and is faster, or hardly more and is much faster; or for none.

        Args:
            edges: All edges of a tree.
            prepared: Algorithm that has prepared for this tree -> halvings down to which it has; others that
                would have to prepare are left out. None where nothing has been prepared yet, and all can.
        """
        able = [
            name
            for name, profile in sorted(self._profiles.items())
            if prepared is None or name in prepared or not profile.prepares
        ] or sorted(self._profiles)
        singly = [name for name in able if not self._profiles[name].shared_steps] or able
        by_algorithm = [self._expected(name, edges, prepared is not None) for name in singly]
        considered = list(zip(*by_algorithm, strict=True))
        best = [_best(expected) for expected in considered]
        comparisons: list[list[_Comparison]] = [[] for _ in edges]
        for name in able:
            places = [place for place, edge in enumerate(edges) if self._suits(name, edge, prepared)]
            if name in singly or len(places) < (self._profiles[name].least_path if prepared is None else 1):
                continue
            together = self._expected(name, [edges[place] for place in places], prepared is not None)
            comparison = _Comparison(together, [best[place] for place in places])
            for place, one in zip(places, together, strict=True):
                comparisons[place].append(comparison)
                best[place] = one if comparison.sharing_wins else best[place]
        return [
            Choice(one.algorithm, self._reason(edge, one, others, averaged), one.lost)
            for edge, one, others, averaged in zip(edges, best, considered, comparisons, strict=True)
        ]

    def preparing_steps(self, algorithm: str, edges: Sequence[Edge]) -> int:
        """Return the steps in which an algorithm prepares for one edge or more."""
        return self._profiles[algorithm].preparation_steps(max(edge.halvings for edge in edges))

    def case(self, edge: Edge, algorithm: str, rounds: int = 1) -> EdgeFeatures:
        """Return an edge as an algorithm would adapt it."""
        return EdgeFeatures(
            subject=self._subject,
            kind=self._features.kind,
            algorithm=algorithm,
            halvings=edge.halvings,
            distance=edge.distance,
            share=edge.share,
            steps=self._profiles[algorithm].steps(edge.distance, rounds),
            shared_steps=self._profiles[algorithm].shared_steps,
        )

    def _suits(self, algorithm: str, edge: Edge, prepared: Mapping[str, float] | None) -> bool:
        """Check whether an algorithm whose networks share their training may adapt an edge.

        It trains no networks above the source, must have trained for the size of later ones, cannot continue
        one of them until it reaches a target, and has not been measured under limits on latency. Where the
        settings leave other algorithms no steps, nothing is to be trained.
        """
        profile = self._profiles[algorithm]
        others = (other for other in self._profiles.values() if not other.shared_steps)
        if edge.path < profile.least_path or not any(other.steps(edge.distance) for other in others):
            return False
        most = inf if prepared is None else prepared.get(algorithm, inf)
        aimed = edge.has_targets and not profile.tune_steps
        return 0 <= edge.halvings <= most and not aimed and not edge.limits_latency

    def _expected(self, algorithm: str, edges: Sequence[Edge], is_prepared: bool) -> list[_Expected]:
        cases = [self.case(edge, algorithm) for edge in edges]
        preparing = 0 if is_prepared or not edges else self.preparing_steps(algorithm, edges)
        part = preparing * self._profiles[algorithm].preparation_step / max(len(edges), 1)
        overhead = self._history.overhead(algorithm) + part
        preparation = (
            f" (after {preparing:,} for {counted(len(edges), 'goal')} together)" if preparing else ""
        )
        return [
            _Expected(algorithm, lost, case.work + overhead, preparation)
            for case, lost in zip(cases, self._history.lost(cases), strict=True)
        ]

    def _reason(
        self, edge: Edge, best: _Expected, singly: Sequence[_Expected], averaged: Sequence[_Comparison]
    ) -> str:
        """Say why an algorithm was chosen, by the figures that decided.

        Args:
            best: The expected result of the chosen algorithm.
            singly: The expected results of the algorithms that are chosen edge by edge.
            averaged: The comparisons of averages that the edge was part of.
        """
        others = [one for one in singly if one is not best] if best in singly else []
        if not others and not averaged:
            return "no other algorithm can be chosen"
        steps = self.case(edge, best.algorithm).steps
        distance = f"{2**edge.distance:.2g}"
        way = f"down to 1/{distance} of its parent's costs" if distance != "1" else "at its parent's costs"
        against = " and ".join(
            f"{one.algorithm} {one.lost.mean:z.1%} in {one.time / best.time:.1f} times the time"
            for one in others
        )
        return (
            f"expected to lose {best.lost.mean:z.1%} of the source's accuracy {way} in "
            f"{counted(steps, 'step')}{best.preparation}{f', compared with {against}' if against else ''}"
            f"{''.join(f'; {comparison}' for comparison in averaged)}, {self._evidence}"
        )


def longest_paths(nodes: Sequence[NodePlan]) -> dict[int | None, int]:
    """Return the edges of the longest path on which each node is, by index.

    Args:
        nodes: All nodes of a tree, parents first.
    """
    longest: dict[int | None, int] = {None: 0}
    for node in nodes:
        longest[node.index] = longest[node.parent] + 1
    for node in reversed(nodes):
        longest[node.parent] = max(longest[node.parent], longest[node.index])
    return longest


def _best(expected: Sequence[_Expected]) -> _Expected:
    """Return the fastest of the algorithms that lose least on an edge."""
    least = min(one.lost.mean for one in expected)
    return min((one for one in expected if one.lost.mean <= least + _TOLERANCE), key=lambda one: one.time)


def _mean_loss(expected: Sequence[_Expected]) -> float:
    return fmean(one.lost.mean for one in expected)


def _time(expected: Sequence[_Expected]) -> float:
    return sum(one.time for one in expected)


def _names(expected: Sequence[_Expected]) -> str:
    return " or ".join(sorted({one.algorithm for one in expected}))

"""Choice of the algorithm for an edge (paper 3, "automatically selected adaptation algorithm")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Final

from executors.contract.profile import AlgorithmProfile
from mistify.jobs.plan import Estimate
from mistify.jobs.tuning_steps import needed_steps
from mistify.wording import counted
from mistify_server.planning.forecast.history import ForecastHistory
from mistify_server.store.edges import EdgeFeatures
from mistify_server.store.plans import NodePlan
from mistify_server.tasks.estimates import NetworkFeatures

#: Negligible loss relative to the source's accuracy: seeds differ by as much. Among algorithms within this
#: tolerance, the fastest wins.
_TOLERANCE: Final = 0.005

#: Additional mean loss that is acceptable for networks that share their training, and the maximum share of
#: the other algorithms' time that they may then take. With default settings, a path of 32 goals takes three
#: times as long as shared training, and one of 128 goals seven times. On the digits, sharing costs 0.2 to 0.4
#: percentage points (docs/decisions/many-goals.md).
_SHARING_TOLERANCE: Final = 0.01
_MUCH_FASTER: Final = 1 / 3

#: Networks of fewer halvings are not cut; costs are interpolated.
_UNCUT: Final = 1e-3


@dataclass(frozen=True)
class Edge:
    """An edge of a goal tree.

    Attributes:
        halvings: Halvings of the multiply-adds from the source to the goal.
        distance: Halvings of the costs from parent to goal.
        share: The parent's multiply-adds divided by the source's.
        limits_latency: Whether latency is limited, on any hardware.
        has_targets: Whether the network has a target to reach.
        path: Number of edges on the longest path through this edge.
        source_steps: Steps for which the source is tuned on the data of this edge; 0 for a task of its own.
    """

    halvings: float
    distance: float
    share: float
    limits_latency: bool = False
    has_targets: bool = False
    path: int = 1
    source_steps: int = 0


@dataclass(frozen=True)
class Choice:
    """A chosen algorithm, the reason as a sentence fragment, and its expected relative loss of accuracy."""

    algorithm: str
    reason: str
    lost: Estimate


@dataclass(frozen=True)
class _Expected:
    """Expected results of an algorithm on an edge.

    Attributes:
        lost: Loss relative to the source's figure.
        time: Duration in training steps of the source, including the edge's share of the preparation.
        preparation: The preparation time as a sentence fragment; empty if no preparation remains.
    """

    algorithm: str
    lost: Estimate
    time: float
    preparation: str


@dataclass(frozen=True)
class _Comparison:
    """A comparison of an algorithm with shared training with the choices for each edge alone.

    Attributes:
        sharing: The expected results with shared training, one for each suitable edge.
        others: The expected results of the algorithms chosen for these edges otherwise.
    """

    sharing: Sequence[_Expected]
    others: Sequence[_Expected]

    @property
    def sharing_wins(self) -> bool:
        """True if shared training gives better networks on average, or equally good ones faster.

        Slightly worse networks must be much faster.
        """
        more = _mean_loss(self.sharing) - _mean_loss(self.others)
        ratio = _time(self.sharing) / _time(self.others)
        if more <= _TOLERANCE:
            return more < -_TOLERANCE or ratio < 1
        return more <= _SHARING_TOLERANCE and ratio < _MUCH_FASTER

    def __str__(self) -> str:
        """Return the mean results of the chosen and the rejected algorithms, as a sentence fragment."""
        chosen, rejected = self.sharing, self.others
        if not self.sharing_wins:
            chosen, rejected = rejected, chosen
        return (
            f"averaged over {counted(len(chosen), 'goal')} {_mean_loss(chosen):z.1%}, compared with "
            f"{_names(rejected)} {_mean_loss(rejected):z.1%} in "
            f"{_time(rejected) / _time(chosen):.1f} times the time"
        )


class Chooser:
    """Chooses the fastest among the algorithms with the smallest expected loss.

    The choice is deterministic for a given edge and history.

    Args:
        subject: A digest of model and data.
        profiles: Name of each eligible algorithm -> its profile; at least one.
        history: The adapted edges from which losses are predicted.
        nats: See `EdgeEstimates.nats`.
    """

    def __init__(
        self,
        features: NetworkFeatures,
        subject: str,
        profiles: Mapping[str, AlgorithmProfile],
        history: ForecastHistory,
        nats: float | None = None,
    ) -> None:
        self._features = features
        self._subject = subject
        self._profiles = profiles
        self._history = history
        self._nats = nats
        self._evidence = history.evidence(subject, features.kind)

    def __call__(self, edges: Sequence[Edge], prepared: Mapping[str, float] | None = None) -> list[Choice]:
        """Choose algorithms for edges that share an algorithm's preparation time.

        An algorithm with shared training is chosen for all suitable edges or for none. It is chosen if its
        mean loss is equal and it is faster, or if its mean loss is slightly larger and it is much faster.

        Args:
            edges: All edges of a tree.
            prepared: Algorithm that is already prepared for this tree -> halvings down to which it is
                prepared. Unprepared algorithms are excluded. None if nothing has been prepared and any
                algorithm still can be.
        """
        able = [
            name
            for name, profile in sorted(self._profiles.items())
            if prepared is None or name in prepared or not profile.needs_preparation
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
        """Return an algorithm's preparation steps for one or more edges."""
        return self._profiles[algorithm].preparation_steps(max(edge.halvings for edge in edges))

    def case(self, edge: Edge, algorithm: str, rounds: int = 1) -> EdgeFeatures:
        """Return the features of an edge adapted by an algorithm."""
        spared = self._spared(edge, self._profiles[algorithm].tune_steps)
        return EdgeFeatures(
            subject=self._subject,
            kind=self._features.kind,
            algorithm=algorithm,
            halvings=edge.halvings,
            distance=edge.distance,
            share=edge.share,
            steps=self._profiles[algorithm].steps(edge.distance, rounds, spared),
            spared=spared,
            shared_steps=self._profiles[algorithm].shared_steps,
        )

    def _spared(self, edge: Edge, tune_steps: int) -> int:
        """Return how many of the steps of tuning the network of an edge is expected not to need."""
        is_cut = abs(edge.halvings) > _UNCUT
        return tune_steps - needed_steps(tune_steps, self._nats, edge.source_steps, is_cut=is_cut)

    def _suits(self, algorithm: str, edge: Edge, prepared: Mapping[str, float] | None) -> bool:
        """Check whether an algorithm with shared training suits an edge.

        It trains no networks larger than the source, must already have trained for the size of added goals,
        and cannot train a single network further until it reaches a target. It has not been evaluated under
        limits on latency. If the settings leave other algorithms no steps, nothing may be trained.
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
        """Explain the choice of an algorithm by the decisive figures.

        Args:
            best: The expected result of the chosen algorithm.
            singly: The expected results of the algorithms that are chosen per edge.
            averaged: The comparisons of means that include the edge.
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
    """Return the number of edges on the longest path through each node, by index.

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
    """Return the fastest of the algorithms with the smallest loss on an edge."""
    least = min(one.lost.mean for one in expected)
    return min((one for one in expected if one.lost.mean <= least + _TOLERANCE), key=lambda one: one.time)


def _mean_loss(expected: Sequence[_Expected]) -> float:
    return fmean(one.lost.mean for one in expected)


def _time(expected: Sequence[_Expected]) -> float:
    return sum(one.time for one in expected)


def _names(expected: Sequence[_Expected]) -> str:
    return " or ".join(sorted({one.algorithm for one in expected}))

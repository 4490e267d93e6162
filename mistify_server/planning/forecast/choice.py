"""Choice of the algorithm for an edge (paper 3, "automatically selected adaptation algorithm")."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mistify.jobs.plan import Estimate
from mistify.wording import counted
from mistify_server.planning.forecast.experience import Experience
from mistify_server.store.edges import Case
from mistify_server.tasks.estimates import Candidate, Traits

#: A share of the source's accuracy that makes no difference, as seeds differ by as much: of algorithms within
#: it the fastest is taken.
_TOLERANCE: Final = 0.005


@dataclass(frozen=True)
class Edge:
    """An edge of a goal tree.

    Attributes:
        halvings: Of the multiply-adds, from the source to the goal.
        distance: Halvings of the costs between parent and goal.
        share: The parent's multiply-adds over the source's.
        limits_latency: Whether latency is limited, on any hardware.
    """

    halvings: float
    distance: float
    share: float
    limits_latency: bool = False


@dataclass(frozen=True)
class Choice:
    """An algorithm, the reason for it (a part of a sentence), and the share of accuracy it should lose."""

    algorithm: str
    reason: str
    lost: Estimate


@dataclass(frozen=True)
class _Expected:
    """Expected results of an algorithm: accuracy lost, and time in training steps of the source."""

    algorithm: str
    lost: Estimate
    time: float


class Chooser:
    """Chooses the fastest of the algorithms that are expected to lose least.

    The same edge and the same experience give the same choice.

    Args:
        traits: Of the model.
        subject: A digest of model and data.
        candidates: By name, at least one.
        experience: Predicts losses.
    """

    def __init__(
        self, traits: Traits, subject: str, candidates: Mapping[str, Candidate], experience: Experience
    ) -> None:
        self._traits = traits
        self._subject = subject
        self._candidates = candidates
        self._experience = experience
        self._evidence = experience.evidence(subject, traits.kind)

    def __call__(self, edges: Sequence[Edge], prepared: Collection[str] | None = None) -> list[Choice]:
        """Choose the algorithms of edges that share the time for which an algorithm prepares.

        Args:
            edges: Of one tree.
            prepared: The algorithms that have prepared for this tree; others that would have to prepare are
                left out. None where nothing has been prepared yet, and all can.
        """
        available = {
            name: candidate
            for name, candidate in self._candidates.items()
            if prepared is None or name in prepared or not candidate.preparing
        }
        by_algorithm = [
            self._expected(name, edges, candidate.preparing / len(edges) if prepared is None else 0.0)
            for name, candidate in sorted((available or self._candidates).items())
        ]
        return [self._best(edge, expected) for edge, *expected in zip(edges, *by_algorithm, strict=True)]

    def case(self, edge: Edge, algorithm: str, rounds: int = 1) -> Case:
        """Return an edge as an algorithm would adapt it."""
        return Case(
            subject=self._subject,
            kind=self._traits.kind,
            algorithm=algorithm,
            halvings=edge.halvings,
            distance=edge.distance,
            share=edge.share,
            steps=self._candidates[algorithm].steps(edge.distance, rounds),
        )

    def _expected(self, algorithm: str, edges: Sequence[Edge], preparing: float) -> list[_Expected]:
        cases = [self.case(edge, algorithm) for edge in edges]
        overhead = self._experience.overhead(algorithm) + preparing
        return [
            _Expected(algorithm, self._at_latency(algorithm, edge, lost), case.work + overhead)
            for edge, case, lost in zip(edges, cases, self._experience.lost(cases), strict=True)
        ]

    def _at_latency(self, algorithm: str, edge: Edge, lost: Estimate) -> Estimate:
        """Return what is lost under the edge's limits, which may be on latency."""
        gain = self._candidates[algorithm].gain_at_latency if edge.limits_latency else 0.0
        return replace(lost, mean=lost.mean - gain * edge.halvings)

    def _best(self, edge: Edge, expected: Sequence[_Expected]) -> Choice:
        least = min(one.lost.mean for one in expected)
        best = min((one for one in expected if one.lost.mean <= least + _TOLERANCE), key=lambda one: one.time)
        reason = self._reason(edge, best, [one for one in expected if one is not best])
        return Choice(best.algorithm, reason, best.lost)

    def _reason(self, edge: Edge, best: _Expected, others: list[_Expected]) -> str:
        if not others:
            return "no other algorithm can be chosen"
        steps = self.case(edge, best.algorithm).steps
        against = " and ".join(
            f"{one.algorithm} {one.lost.mean:z.1%} in {one.time / best.time:.1f} times as long"
            for one in others
        )
        distance = f"{2**edge.distance:.2g}"
        way = f"down to 1/{distance} of its parent's costs" if distance != "1" else "as large as its parent"
        return (
            f"{way} in {counted(steps, 'step')}, on a "
            f"{self._traits.kind} network, it should lose {best.lost.mean:z.1%} of the source's accuracy, "
            f"{against}, " + self._evidence
        )

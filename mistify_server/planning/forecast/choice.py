"""Which algorithm adapts an edge (paper 3, "automatically selected adaptation algorithm"), and why."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mistify.jobs.plan import Estimate
from mistify_server.planning.forecast.experience import Experience
from mistify_server.store.edges import Case
from mistify_server.tasks.estimates import Candidate, Traits

#: Shares of the source's accuracy that make no difference, as seeds differ by as much: of two algorithms as
#: good the faster one is taken.
_AS_GOOD: Final = 0.005


@dataclass(frozen=True)
class Edge:
    """An edge of a goal tree.

    Attributes:
        halvings: Of the multiply-adds, from the source to the goal.
        distance: Halvings of the costs between parent and goal.
        share: The parent's multiply-adds over the source's.
    """

    halvings: float
    distance: float
    share: float


@dataclass(frozen=True)
class Choice:
    """An algorithm, and why that one: a sentence without its beginning and its end."""

    algorithm: str
    reason: str


@dataclass(frozen=True)
class _Expected:
    """What one algorithm would come to: what is lost, and its time in training steps of the source."""

    algorithm: str
    lost: Estimate
    time: float


class Chooser:
    """Chooses by what edges like it have lost, and of algorithms as good the one that is fastest.

    The same edge and the same experience give the same choice.

    Args:
        traits: Of the model.
        subject: A digest of model and data.
        candidates: By name, at least one.
        experience: What the store has seen.
    """

    def __init__(
        self, traits: Traits, subject: str, candidates: Mapping[str, Candidate], experience: Experience
    ) -> None:
        self._traits = traits
        self._subject = subject
        self._candidates = candidates
        self._experience = experience

    def __call__(self, edges: Sequence[Edge], prepared: Collection[str] | None = None) -> list[Choice]:
        """The algorithms of edges, which share what an algorithm prepares.

        Args:
            edges: Of one tree.
            prepared: What algorithms have prepared for this tree already; the others that would have to are
                left out. None where nothing has been prepared yet, and all can.
        """
        fit = {
            name: candidate
            for name, candidate in self._candidates.items()
            if prepared is None or name in prepared or not candidate.preparing
        }
        found = [
            self._expected(name, edges, of.preparing / len(edges) if prepared is None else 0.0)
            for name, of in sorted((fit or self._candidates).items())
        ]
        return [self._best(edge, rivals) for edge, *rivals in zip(edges, *found, strict=True)]

    def case(self, edge: Edge, algorithm: str, rounds: int = 1) -> Case:
        """An edge as an algorithm would adapt it."""
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
        besides = self._experience.overhead(algorithm) + preparing
        return [
            _Expected(algorithm, lost, case.work + besides)
            for case, lost in zip(cases, self._experience.lost(cases), strict=True)
        ]

    def _best(self, edge: Edge, found: Sequence[_Expected]) -> Choice:
        least = min(one.lost.mean for one in found)
        best = min((one for one in found if one.lost.mean <= least + _AS_GOOD), key=lambda one: one.time)
        return Choice(best.algorithm, self._reason(edge, best, [one for one in found if one is not best]))

    def _reason(self, edge: Edge, best: _Expected, others: list[_Expected]) -> str:
        if not others:
            return "no other algorithm can be chosen"
        steps = self.case(edge, best.algorithm).steps
        against = " and ".join(
            f"{one.algorithm} {one.lost.mean:.1%} in {one.time / best.time:.1f} times as long"
            for one in others
        )
        return (
            f"down to 1/{2**edge.distance:.2g} of its parent's costs in {steps:,} steps, on a "
            f"{self._traits.kind} network, it should lose {best.lost.mean:.1%} of the source's accuracy, "
            f"{against}, " + self._experience.evidence(self._subject, self._traits.kind)
        )

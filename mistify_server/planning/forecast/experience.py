"""What edges lose and how long they take, by those that a store has seen and, before, by benchmarks.

A Gaussian process over `burden`, the halvings of the multiply-adds as they weigh by the steps given for them:
what an edge loses is its burden times a rate, and rates are the more alike the more two edges have in common,
their kind of network, their model and data, their algorithm, and how far they go in how many steps. A source
that was trained badly gains by mere training, which tells of no other source.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.jobs.plan import Estimate
from mistify_server.store.edges import Case, EdgeRecord
from mistify_server.tasks.estimates import Candidate

Floats = npt.NDArray[np.float64]

#: Share of the source's accuracy that a halving costs in `_USUAL_STEPS` steps, and how it falls with more of
#: them: ResNet-8 on CIFAR-10 loses 0.057 in 900 steps and 0.07 to 0.1 in 133, SNIPS 0.013 to 0.026 in 1,000,
#: a depthwise network that was trained from nothing 0.005 to 0.015 in 133.
_RATE: Final = 0.03
_USUAL_STEPS: Final = 1_000
_FALL: Final = 0.2

#: Standard deviations of that rate: for all edges alike, and for what edges can have in common besides.
_SPREAD: Final = 0.01
_SPREADS: Final = {
    ("kind",): 0.01,
    ("subject",): 0.022,
    ("algorithm",): 0.004,
    ("kind", "algorithm"): 0.004,
    ("subject", "algorithm"): 0.008,
}

#: Part of a rate that is the same for all edges, however far they go; the rest is alike within these lengths
#: of halvings from the source, halvings from the parent, and tenfolds of the steps.
_CONSTANT: Final = 0.6
_LENGTHS: Final = np.array([1.5, 1.5, 0.7])

#: What one edge loses more or less than another like it: seeds differ by some half a point.
_NOISE: Final = 0.005
_NOISE_OF_BURDEN: Final = 0.003

#: A source is poor if a smaller network is better by more than this share: more than seeds differ by.
_POOR: Final = 4 * _NOISE

#: So few residuals say nothing of how uncertain a prediction is.
_FEWEST: Final = 3

#: Edges that are predicted at once.
_AT_ONCE: Final = 1_000

#: Edges by which speed is told: the machine may have been busier before.
_LATEST: Final = 20


class Experience:
    """Predicts edges from those of a store.

    Args:
        records: Of the edges, the oldest first.
        candidates: The algorithms, for what was measured of them before.
    """

    def __init__(self, records: Sequence[EdgeRecord], candidates: Mapping[str, Candidate]) -> None:
        self._records = list(records)
        self._candidates = candidates
        self._codes: dict[tuple[str, ...], int] = {}
        self._poor = {
            record.case.subject for record in records if record.case.halvings > 0 and record.lost < -_POOR
        }
        self._known = self._figures([record.case for record in records])
        if not self._records:
            return
        covariance = _covariance(self._known, self._known) + np.diag(_noise(self._known))
        self._inverse = np.linalg.inv(covariance)
        self._weights = self._inverse @ (np.array([r.lost for r in records]) - self._known.usual)

    def lost(self, cases: Sequence[Case]) -> list[Estimate]:
        """What edges lose: shares of what the source reaches.

        The deviation is that of the process, and so much more as leaving out each record and predicting it by
        the others says: of those of the same model and data, of all where these are too few.
        """
        found: list[Estimate] = []
        for at in range(0, len(cases), _AT_ONCE):
            found += self._lost(cases[at : at + _AT_ONCE])
        return found

    def _lost(self, cases: Sequence[Case]) -> Iterator[Estimate]:
        wanted = self._figures(cases)
        mean, variance = wanted.usual, _variance(wanted) + _noise(wanted)
        if self._records:
            shared = _covariance(wanted, self._known)
            mean = mean + shared @ self._weights
            variance = variance - ((shared @ self._inverse) * shared).sum(axis=1)
        deviation = np.sqrt(np.maximum(variance, _NOISE**2))
        distrust = {subject: self._distrust(subject) for subject in {case.subject for case in cases}}
        for case, m, d in zip(cases, mean, deviation, strict=True):
            yield Estimate(float(m), distrust[case.subject] * float(d))

    def source(self, subject: str, source_steps: int) -> float | None:
        """What the tuned source reaches, as the last job with it has found; None where there was none."""
        found = [
            record.source
            for record in self._records
            if (record.case.subject, record.source_steps) == (subject, source_steps)
        ]
        return found[-1] if found else None

    def step_seconds(self, subject: str) -> float | None:
        """What a training step of the source takes, by the latest edges; None where there was none."""
        found = [
            record.seconds / (record.case.work + self.overhead(record.case.algorithm))
            for record in self._records
            if record.case.subject == subject
        ]
        return float(np.median(found[-_LATEST:])) if found else None

    def overhead(self, algorithm: str) -> int:
        """What an edge takes besides its training steps, in steps of the source."""
        return self._candidates[algorithm].edge if algorithm in self._candidates else 0

    def evidence(self, subject: str, kind: str) -> str:
        """What predictions rest on, in words."""
        same = sum(record.case.subject == subject for record in self._records)
        like = sum(
            record.case.kind == kind and record.case.subject not in self._poor for record in self._records
        )
        if same:
            return f"by {same} edge{'s'[: same > 1]} of this model and data"
        if like:
            return f"by {like} edge{'s'[: like > 1]} of other {kind} networks"
        return "by benchmarks, as nothing like it was adapted here yet"

    def _figures(self, cases: Sequence[Case]) -> "_Figures":
        burdens = [max(case.halvings, 0.0) * (_USUAL_STEPS / max(case.steps, 1)) ** _FALL for case in cases]
        gains = [
            self._candidates[case.algorithm].gain if case.algorithm in self._candidates else 0.0
            for case in cases
        ]
        places = [[case.halvings, case.distance, np.log10(max(case.steps, 1))] for case in cases]
        labels = {
            names: np.array(
                [self._code(names, *(getattr(case, name) for name in names)) for case in cases], np.int64
            )
            for names in _SPREADS
        }
        return _Figures(
            np.array(burdens),
            (_RATE - np.array(gains)) * burdens,
            np.reshape(places, (-1, 3)),
            labels,
            np.array([self._circle(case.subject) for case in cases], np.int64),
        )

    def _circle(self, subject: str) -> int:
        """The same number for subjects that tell of each other; a poor source tells of itself alone."""
        return self._code((), subject if subject in self._poor else "")

    def _code(self, names: tuple[str, ...], *values: str) -> int:
        return self._codes.setdefault((*names, *values), len(self._codes))

    def _distrust(self, subject: str) -> float:
        """How much further records are from predictions by the others than these claim; at least 1."""
        if not self._records:
            return 1.0
        scores = self._weights / np.sqrt(np.diag(self._inverse))
        own = scores[[record.case.subject == subject for record in self._records]]
        scores = own if len(own) >= _FEWEST else scores[self._known.circles == self._circle(subject)]
        return max(1.0, float(np.sqrt(np.mean(scores**2)))) if len(scores) >= _FEWEST else 1.0


class _Figures(NamedTuple):
    """Edges in numbers.

    Attributes:
        burdens: [edges].
        usual: What they lose as far as it was measured before, [edges].
        places: By which rates vary, [edges, 3].
        labels: What edges can have in common -> [edges], equal where they have.
        circles: [edges], equal where they tell of each other.
    """

    burdens: Floats
    usual: Floats
    places: Floats
    labels: Mapping[tuple[str, ...], npt.NDArray[np.int64]]
    circles: npt.NDArray[np.int64]


def _noise(of: _Figures) -> Floats:
    """Variances."""
    found: Floats = _NOISE**2 + (_NOISE_OF_BURDEN * of.burdens) ** 2
    return found


def _variance(of: _Figures) -> Floats:
    """Of each edge by itself, without noise."""
    found: Floats = of.burdens**2 * (_SPREAD**2 + sum(spread**2 for spread in _SPREADS.values()))
    return found


def _covariance(left: _Figures, right: _Figures) -> Floats:
    """[left, right]."""
    ways = (left.places[:, None] - right.places[None]) / _LENGTHS
    alike = _CONSTANT + (1 - _CONSTANT) * np.exp(-0.5 * (ways**2).sum(axis=-1))
    common = np.full(alike.shape, _SPREAD**2)
    for names, spread in _SPREADS.items():
        common += spread**2 * (left.labels[names][:, None] == right.labels[names][None])
    alike *= left.circles[:, None] == right.circles[None]
    found: Floats = np.outer(left.burdens, right.burdens) * common * alike
    return found

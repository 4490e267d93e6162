"""What edges lose and how long they take, by those that a store has seen and, before, by benchmarks.

A Gaussian process over `burden`, the halvings of the multiply-adds as they weigh by the steps given for them:
what an edge loses is its burden times a rate, and rates are the more alike the more two edges have in common,
their kind of network, their model and data, their algorithm, and how far they go in how many steps.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mistify.plans import Estimate
from mistify_server.forecast.cases import Case, EdgeRecord
from mistify_server.forecast.known import Candidate

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

#: So few residuals say nothing of how uncertain a prediction is.
_FEWEST: Final = 3

#: Edges by which speed is told: the machine may have been busier before.
_LATEST: Final = 20


class Experience:
    """Predicts edges from those of a store.

    Args:
        records: Of the edges, the oldest first.
        candidates: The algorithms, for what was measured of them before.
    """

    def __init__(self, records: Sequence[EdgeRecord], candidates: dict[str, Candidate]) -> None:
        self._records = list(records)
        self._candidates = candidates
        self._cases = [record.case for record in records]
        if not self._cases:
            return
        covariance = _covariance(self._cases, self._cases) + np.diag(_noise(self._cases))
        self._inverse = np.linalg.inv(covariance)
        self._weights = self._inverse @ (np.array([r.lost for r in records]) - self._usual(self._cases))

    def lost(self, cases: Sequence[Case]) -> list[Estimate]:
        """What edges lose: shares of what the source reaches.

        The deviation is that of the process, and so much more as leaving out each record and predicting it by
        the others says: of those of the same model and data, of all where these are too few.
        """
        mean, variance = self._usual(cases), _variance(cases) + _noise(cases)
        if self._cases:
            shared = _covariance(cases, self._cases)
            mean = mean + shared @ self._weights
            variance = variance - np.einsum("ij,jk,ik->i", shared, self._inverse, shared)
        return [
            Estimate(float(m), self._distrust(case.subject) * float(np.sqrt(max(v, _NOISE**2))))
            for case, m, v in zip(cases, mean, variance, strict=True)
        ]

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
        same = sum(case.subject == subject for case in self._cases)
        like = sum(case.kind == kind for case in self._cases)
        if same:
            return f"by {same} edge{'s'[: same > 1]} of this model and data"
        if like:
            return f"by {like} edge{'s'[: like > 1]} of other {kind} networks"
        return "by benchmarks, as nothing like it was adapted here yet"

    def _usual(self, cases: Sequence[Case]) -> Floats:
        """What edges lose as far as it was measured before."""
        gains = [
            self._candidates[case.algorithm].gain if case.algorithm in self._candidates else 0.0
            for case in cases
        ]
        found: Floats = (_RATE - np.array(gains)) * _burdens(cases)
        return found

    def _distrust(self, subject: str) -> float:
        """How much further records are from predictions by the others than these claim; at least 1."""
        if not self._cases:
            return 1.0
        scores = self._weights / np.sqrt(np.diag(self._inverse))
        own = scores[[case.subject == subject for case in self._cases]]
        scores = own if len(own) >= _FEWEST else scores
        return max(1.0, float(np.sqrt(np.mean(scores**2)))) if len(scores) >= _FEWEST else 1.0


def _burdens(cases: Sequence[Case]) -> Floats:
    return np.array(
        [max(case.halvings, 0.0) * (_USUAL_STEPS / max(case.steps, 1)) ** _FALL for case in cases]
    )


def _noise(cases: Sequence[Case]) -> Floats:
    """Variances."""
    found: Floats = _NOISE**2 + (_NOISE_OF_BURDEN * _burdens(cases)) ** 2
    return found


def _variance(cases: Sequence[Case]) -> Floats:
    """Of each case by itself, without noise."""
    found: Floats = _burdens(cases) ** 2 * (_SPREAD**2 + sum(spread**2 for spread in _SPREADS.values()))
    return found


def _covariance(left: Sequence[Case], right: Sequence[Case]) -> Floats:
    """[left, right]."""
    ways = (_places(left)[:, None] - _places(right)[None]) / _LENGTHS
    alike = _CONSTANT + (1 - _CONSTANT) * np.exp(-0.5 * (ways**2).sum(axis=-1))
    common = np.full(alike.shape, _SPREAD**2)
    for names, spread in _SPREADS.items():
        one, other = (
            np.array(["/".join(getattr(case, name) for name in names) for case in cases])
            for cases in (left, right)
        )
        common += spread**2 * (one[:, None] == other[None])
    found: Floats = np.outer(_burdens(left), _burdens(right)) * common * alike
    return found


def _places(cases: Sequence[Case]) -> Floats:
    """[cases, 3], by which rates vary."""
    return np.array([[case.halvings, case.distance, np.log10(max(case.steps, 1))] for case in cases])

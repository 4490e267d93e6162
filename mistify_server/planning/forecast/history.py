"""Predictions of the accuracy losses and times of edges.

A Gaussian process (`kernel`) predicts losses from the edges in a store. Benchmark figures are its prior mean.
An undertrained source gains from training alone, which says nothing about other sources, so its edges form a
separate group.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from executors.contract.profile import USUAL_RATE, AlgorithmProfile
from mistify.config.data.metric import Metric
from mistify.jobs.plan import Estimate
from mistify.wording import counted
from mistify_server.planning.forecast.kernel import (
    NOISE,
    SPREADS,
    Features,
    covariance,
    noise,
    position,
    variance,
    weighted_halvings,
)
from mistify_server.store.edges import EdgeFeatures, EdgeRecord

#: A source is undertrained if a smaller network is better by more than this share, which exceeds seed noise.
_UNDERTRAINED: Final = 4 * NOISE

#: Minimum number of residuals for estimating the uncertainty of predictions.
_LEAST_RESIDUALS: Final = 3

#: Degrees of freedom of the losses for a new model.
_DEGREES: Final = 4.0

#: Number of edges to predict at once.
_CHUNK: Final = 1_000

#: Number of latest edges for estimating speed: the machine may have been busier before.
_LATEST: Final = 20


class ForecastHistory:
    """Predicts the losses and times of edges from the edges in a store.

    Args:
        records: Records of the store's edges, oldest first.
        profiles: Profiles of the algorithms, with their benchmark figures.
    """

    def __init__(self, records: Sequence[EdgeRecord], profiles: Mapping[str, AlgorithmProfile]) -> None:
        self._records = list(records)
        self._profiles = profiles
        self._codes: dict[tuple[str, ...], int] = {}
        self._undertrained = {
            record.case.subject
            for record in records
            if record.case.halvings > 0 and record.lost < -_UNDERTRAINED
        }
        self._seen = self._features([record.case for record in records])
        if not self._records:
            return
        covariances = covariance(self._seen, self._seen) + np.diag(noise(self._seen))
        self._inverse = np.linalg.inv(covariances)
        self._weights = self._inverse @ (np.array([record.lost for record in records]) - self._seen.mean)

    def of_output(self, subject: str, output: str, metric: Metric) -> "ForecastHistory":
        """Return the history for one output of a model, with that model's records scored by this output.

        Without such scores, the output's expected relative loss is the overall loss.
        """
        by_output = [
            record.by_output(output, metric) if record.case.subject == subject else None
            for record in self._records
        ]
        if not any(by_output):
            return self
        own = [
            own or record
            for own, record in zip(by_output, self._records, strict=True)
            if own or record.case.subject != subject
        ]
        return ForecastHistory(own, self._profiles)

    def lost(self, cases: Sequence[EdgeFeatures]) -> list[Estimate]:
        """Predict the losses of edges, relative to the source's figure.

        The standard deviation of the process is scaled by its leave-one-out errors on records of the same
        model and data, or on all records if these are few.
        """
        estimates: list[Estimate] = []
        for start in range(0, len(cases), _CHUNK):
            estimates += self._predict(cases[start : start + _CHUNK])
        return estimates

    def _predict(self, cases: Sequence[EdgeFeatures]) -> Iterator[Estimate]:
        edges = self._features(cases)
        mean, variances = edges.mean, variance(edges) + noise(edges)
        if self._records:
            shared = covariance(edges, self._seen)
            mean = mean + shared @ self._weights
            variances = variances - ((shared @ self._inverse) * shared).sum(axis=1)
        deviations = np.sqrt(np.maximum(variances, NOISE**2))
        factors = {subject: self._error_factor(subject) for subject in {case.subject for case in cases}}
        for case, lost, deviation in zip(cases, mean, deviations, strict=True):
            yield Estimate(float(lost), factors[case.subject] * float(deviation))

    def knows(self, subject: str) -> bool:
        """Check whether there are records of a model with its data."""
        return self._count(subject) > 0

    def degrees(self, subject: str) -> float:
        """Return the degrees of freedom of the losses, which grow with the number of records."""
        return _DEGREES + self._count(subject)

    def source(self, subject: str, source_steps: int) -> float | None:
        """Return the tuned source's figure in its latest job; None if there was none."""
        reached = [
            record.source
            for record in self._records
            if (record.case.subject, record.source_steps) == (subject, source_steps)
        ]
        return reached[-1] if reached else None

    def step_seconds(self, subject: str) -> float | None:
        """Return the seconds per training step of the source in the latest edges; None without any edges."""
        seconds = [
            record.seconds / (record.case.work + self.overhead(record.case.algorithm))
            for record in self._records
            if record.case.subject == subject
        ]
        return float(np.median(seconds[-_LATEST:])) if seconds else None

    def overhead(self, algorithm: str) -> int:
        """Return the time of an edge besides its training, in training steps of the source."""
        return self._profiles[algorithm].edge_overhead if algorithm in self._profiles else 0

    def evidence(self, subject: str, kind: str) -> str:
        """Describe the edges on which predictions are based."""
        same = self._count(subject)
        similar = sum(
            record.case.kind == kind and record.case.subject not in self._undertrained
            for record in self._records
        )
        if same:
            return f"based on {counted(same, 'edge')} of this model and data"
        if similar:
            return f"based on {counted(similar, 'edge')} of other {kind} networks"
        return "based on benchmarks, because nothing similar has been adapted here yet"

    def _count(self, subject: str) -> int:
        return sum(record.case.subject == subject for record in self._records)

    def _features(self, cases: Sequence[EdgeFeatures]) -> Features:
        weighted = np.array([weighted_halvings(case.halvings, case.learned) for case in cases])
        known = {name: profile.loss_per_halving for name, profile in self._profiles.items()}
        rates = [known.get(case.algorithm, USUAL_RATE) for case in cases]
        positions = [position(case.halvings, case.distance, case.learned) for case in cases]
        labels = {names: np.array(self._codes_of(names, cases), np.int64) for names in SPREADS}
        return Features(
            weighted_halvings=weighted,
            mean=np.array(rates) * weighted,
            positions=np.reshape(positions, (-1, 3)),
            labels=labels,
            groups=np.array([self._group(case.subject) for case in cases], np.int64),
        )

    def _group(self, subject: str) -> int:
        """Return the group of a subject: a separate one if it is undertrained, otherwise the common one."""
        return self._code((), subject if subject in self._undertrained else "")

    def _codes_of(self, names: tuple[str, ...], cases: Sequence[EdgeFeatures]) -> list[int]:
        values = zip(*([getattr(case, name) for case in cases] for name in names), strict=True)
        return [self._code(names, *of_case) for of_case in values]

    def _code(self, names: tuple[str, ...], *values: str) -> int:
        """Return an integer that identifies a combination of label values."""
        return self._codes.setdefault((*names, *values), len(self._codes))

    def _error_factor(self, subject: str) -> float:
        """Return the ratio of actual to predicted leave-one-out errors; at least 1."""
        if not self._records:
            return 1.0
        scores = self._weights / np.sqrt(np.diag(self._inverse))
        own = scores[[record.case.subject == subject for record in self._records]]
        scores = own if len(own) >= _LEAST_RESIDUALS else scores[self._seen.groups == self._group(subject)]
        if len(scores) < _LEAST_RESIDUALS:
            return 1.0
        return max(1.0, float(np.sqrt(np.mean(scores**2))))

"""A predictor of a candidate's quality, which learns from measured ones."""

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sklearn.gaussian_process import GaussianProcessRegressor

Floats = npt.NDArray[np.float64]

#: Of the similarity of candidates, in halvings of the widths: where it starts, and its limits.
_LENGTH: Final = 2.0
_LENGTHS: Final = (0.1, 100.0)
_NOISE: Final = 0.05
_NOISES: Final = (1e-6, 1.0)

#: Samples that are kept, the latest: fitting a process takes time with their number cubed.
_SAMPLES: Final = 500


@dataclass(frozen=True)
class Sample:
    """A candidate that was measured.

    Attributes:
        features: Position in the space, as numbers of similar ranges.
        quality: Measured quality; more is better.
    """

    features: tuple[float, ...]
    quality: float


def saved_samples(samples: Iterable[Sample]) -> bytes:
    """Return samples as bytes."""
    return json.dumps([asdict(sample) for sample in samples]).encode()


def samples_of(content: bytes) -> list[Sample]:
    """Return the samples given to `saved_samples`; none for empty content."""
    samples = json.loads(content or b"[]")
    return [Sample(tuple(sample["features"]), sample["quality"]) for sample in samples]


class Predictor:
    """A Gaussian process over the features of candidates.

    Attributes:
        samples: The latest that it was told, at most 500.
    """

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples = list(samples)[-_SAMPLES:]
        self._process = self._fitted() if self.samples else None

    @classmethod
    def loaded(cls, content: bytes) -> Self:
        """Return a predictor with the samples given to `saved`; without any for empty content."""
        return cls(samples_of(content))

    def saved(self) -> bytes:
        """Return the samples as `loaded` takes them."""
        return saved_samples(self.samples)

    def learn(self, samples: Iterable[Sample]) -> None:
        """Know more samples; how similar candidates are is found out again."""
        self.samples = [*self.samples, *samples][-_SAMPLES:]
        self._process = self._fitted()

    def __call__(self, features: Sequence[Sequence[float]]) -> tuple[Floats, Floats]:
        """Return predicted qualities and their standard deviations [candidates]; 0 and 1 without samples."""
        if self._process is None:
            return np.zeros(len(features)), np.ones(len(features))
        mean, deviation = self._process.predict(np.array(features), return_std=True)
        return mean, deviation

    def _fitted(self) -> "GaussianProcessRegressor":
        # A second to import, which tasks without a search need not wait for.
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415

        kernel = ConstantKernel() * Matern(_LENGTH, _LENGTHS, nu=2.5) + WhiteKernel(_NOISE, _NOISES)
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        features = np.array([sample.features for sample in self.samples])
        with warnings.catch_warnings():
            # That the samples have hardly any noise, or too few of them differ, is no news.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return process.fit(features, [sample.quality for sample in self.samples])

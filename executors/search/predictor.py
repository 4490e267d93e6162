"""A predictor of a candidate's quality, trained on measured candidates."""

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

#: Length scale of the kernel, in halvings of widths, and noise level: initial values and bounds.
_LENGTH: Final = 2.0
_LENGTHS: Final = (0.1, 100.0)
_NOISE: Final = 0.05
_NOISES: Final = (1e-6, 1.0)

#: Maximum number of samples, the latest ones: the time to fit the process grows with their number cubed.
_SAMPLES: Final = 500


@dataclass(frozen=True)
class Sample:
    """A measured candidate.

    Attributes:
        features: Position in the space, as numbers of similar ranges.
        quality: Measured quality; higher is better.
    """

    features: tuple[float, ...]
    quality: float


def saved_samples(samples: Iterable[Sample]) -> bytes:
    """Return samples, serialized."""
    return json.dumps([asdict(sample) for sample in samples]).encode()


def samples_of(content: bytes) -> list[Sample]:
    """Load samples serialized by `saved_samples`; none for empty content."""
    samples = json.loads(content or b"[]")
    return [Sample(tuple(sample["features"]), sample["quality"]) for sample in samples]


class Predictor:
    """A Gaussian process over the features of candidates.

    Attributes:
        samples: The latest samples, at most 500.
    """

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples = list(samples)[-_SAMPLES:]
        self._process = self._fitted() if self.samples else None

    @classmethod
    def loaded(cls, content: bytes) -> Self:
        """Load a predictor serialized by `saved`; one without samples for empty content."""
        return cls(samples_of(content))

    def saved(self) -> bytes:
        """Return the samples, serialized for `loaded`."""
        return saved_samples(self.samples)

    def learn(self, samples: Iterable[Sample]) -> None:
        """Add samples; the kernel parameters are fitted again."""
        self.samples = [*self.samples, *samples][-_SAMPLES:]
        self._process = self._fitted()

    def __call__(self, features: Sequence[Sequence[float]]) -> tuple[Floats, Floats]:
        """Return predicted qualities and their standard deviations [candidates]; 0 and 1 without samples."""
        if self._process is None:
            return np.zeros(len(features)), np.ones(len(features))
        mean, deviation = self._process.predict(np.array(features), return_std=True)
        return mean, deviation

    def _fitted(self) -> "GaussianProcessRegressor":
        # These take a second to import, which tasks without a search avoid.
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415

        kernel = ConstantKernel() * Matern(_LENGTH, _LENGTHS, nu=2.5) + WhiteKernel(_NOISE, _NOISES)
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        features = np.array([sample.features for sample in self.samples])
        with warnings.catch_warnings():
            # The warnings only say that samples have hardly any noise, or that too few of them differ.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return process.fit(features, [sample.quality for sample in self.samples])

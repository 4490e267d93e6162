"""ChamNet's settings, defined without TensorFlow."""

from pydantic import Field

from executors.pruning.params import IterativePruningParams


class ChamNetParams(IterativePruningParams):
    """ChamNet's settings.

    Attributes:
        init_population: Candidates in a generation; each round of a search measures as many.
        crossover_rate: Share of children with two parents.
        mutation: Share of a child's genes that change.
        samples: Candidates cut from the source as the predictor's first training data.
    """

    cuts: int = Field(default=3, ge=1)
    init_population: int = Field(default=10, ge=2, le=1000)
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    mutation: float = Field(default=0.08, ge=0, le=1)
    samples: int = Field(default=100, ge=0)

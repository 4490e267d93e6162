"""ChamNet's settings; they need no TensorFlow."""

from pydantic import Field

from executors.pruning.params import IterativePruningParams


class ChamNetParams(IterativePruningParams):
    """ChamNet's settings.

    Attributes:
        init_population: Candidates in a generation; as many are measured in each round of a search.
        crossover_rate: Share of the children that have two parents.
        mutation: Share of a child's genes that change.
        samples: Candidates cut from the source that the predictor learns first.
    """

    cuts: int = Field(default=3, ge=1)
    init_population: int = Field(default=10, ge=2, le=1000)
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    mutation: float = Field(default=0.08, ge=0, le=1)
    samples: int = Field(default=100, ge=0)

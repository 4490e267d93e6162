"""Architecture search: candidates, their predicted quality, and the choice of the best."""

from executors.search.evolution import Evolution, initial_population
from executors.search.inheritance import Inheritance
from executors.search.predictor import Predictor, Sample
from executors.search.space import Architecture, ArchitectureSpace, Genes

__all__ = [
    "Architecture",
    "ArchitectureSpace",
    "Evolution",
    "Genes",
    "Inheritance",
    "Predictor",
    "Sample",
    "initial_population",
]

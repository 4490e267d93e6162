"""Baselines: uniform scaling and random search."""

from executors.algorithms.baselines.params import RandomSearchParams
from executors.contract.algorithm import Algorithm
from executors.pruning.params import IterativePruningParams

UNIFORM = Algorithm(
    executor="executors.algorithms.baselines.uniform:UniformExecutor",
    params=IterativePruningParams,
    profile="executors.pruning.profile:profile",
)

RANDOM = Algorithm(
    executor="executors.algorithms.baselines.random_search:RandomSearchExecutor",
    params=RandomSearchParams,
    profile="executors.pruning.profile:profile",
)

"""MorphNet: pruning of the least important units under structure losses."""

from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.morphnet.executor:MorphNetExecutor",
    params=MorphNetParams,
    profile="executors.pruning.profile:profile",
    automatic=True,
)

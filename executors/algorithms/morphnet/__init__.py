"""MorphNet: units that matter least are cut, under structure losses."""

from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.morphnet.executor:MorphNetExecutor",
    params=MorphNetParams,
    profile="executors.pruning.profile:profile",
    automatic=True,
)

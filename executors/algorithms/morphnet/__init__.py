"""MorphNet: pruning of the least important units under structure losses."""

from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.morphnet.executor:MorphNetExecutor",
    params=MorphNetParams,
    profile="executors.algorithms.morphnet.profile:profile",
    automatic=True,
    edge_settings=frozenset(MorphNetParams.model_fields) - {"batch_size", "layers"},
    prepares_for_limits=False,
)

"""Nested networks: one training run for all goals in a range."""

from executors.algorithms.nested.params import NestedParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.nested.executor:NestedExecutor",
    params=NestedParams,
    profile="executors.algorithms.nested.profile:profile",
    automatic=True,
)

"""AdaptiveNet: a supernet of interchangeable blocks, with subnets of any size (AdaptiveNet 4)."""

from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.adaptivenet.executor:AdaptiveNetExecutor",
    params=AdaptiveNetParams,
    profile="executors.algorithms.adaptivenet.profile:profile",
    edge_settings=frozenset(
        {"adapt_steps", "blocks", "cuts", "max_steps", "schedule_interval", "source_steps", "tune_steps"}
    ),
    prepares_for_limits=False,
)

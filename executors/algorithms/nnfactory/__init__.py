"""NN-Factory: a supernet whose gates an assembler sets for a task and a limit (NN-Factory 3)."""

from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.nnfactory.executor:NNFactoryExecutor",
    params=NNFactoryParams,
    profile="executors.algorithms.nnfactory.profile:profile",
    edge_settings=frozenset(
        {"adapt_steps", "inside", "max_steps", "schedule_interval", "source_steps", "tune_steps"}
    ),
    prepares_for_limits=False,
    serves_tasks=True,
)

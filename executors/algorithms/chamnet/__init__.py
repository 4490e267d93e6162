"""ChamNet: architecture search with an accuracy predictor."""

from executors.algorithms.chamnet.params import ChamNetParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.chamnet.executor:ChamNetExecutor",
    params=ChamNetParams,
    profile="executors.algorithms.chamnet.profile:profile",
    automatic=True,
)

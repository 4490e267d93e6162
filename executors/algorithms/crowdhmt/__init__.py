"""CrowdHMTware: AdaptiveNet's supernet with blocks of other operator families (CrowdHMTware III-A1)."""

from executors.algorithms.adaptivenet import ALGORITHM as ADAPTIVENET
from executors.algorithms.crowdhmt.params import CrowdHmtParams
from executors.contract.algorithm import Algorithm

ALGORITHM = Algorithm(
    executor="executors.algorithms.crowdhmt.executor:CrowdHmtExecutor",
    params=CrowdHmtParams,
    profile="executors.algorithms.adaptivenet.profile:profile",
    edge_settings=ADAPTIVENET.edge_settings,
    prepares_for_limits=ADAPTIVENET.prepares_for_limits,
)

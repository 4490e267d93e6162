"""CrowdHMTware on the server: AdaptiveNet's supernet with other variants (CrowdHMTware III-A)."""

from executors.algorithms.adaptivenet.executor import AdaptiveNetExecutor


class CrowdHmtExecutor(AdaptiveNetExecutor):
    """An executor that selects subnets of a supernet whose blocks are of several operator families.

    The variants of all families start in closed form and are trained like AdaptiveNet's.
    """

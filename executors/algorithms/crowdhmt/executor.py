"""CrowdHMTware on the server: AdaptiveNet's supernet with other variants (CrowdHMTware III-A)."""

from dataclasses import replace

import keras

from executors.algorithms.adaptivenet.executor import AdaptiveNetExecutor
from executors.algorithms.crowdhmt.estimates import estimates
from executors.algorithms.crowdhmt.training import FamilyTraining
from executors.contract.package_parts import PackageParts
from executors.structure import Structure


class CrowdHmtExecutor(AdaptiveNetExecutor):
    """An executor that selects subnets of a supernet whose blocks are of several operator families.

    The variants of all families start in closed form. Those that others do not surpass after distillation are
    trained like AdaptiveNet's. Packages also list the best networks of their blocks.
    """

    _training = FamilyTraining

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return AdaptiveNet's blocks with the front of their networks."""
        parts = super().package_parts(source, prepared, network)
        return replace(parts, front=estimates(parts.blocks)) if parts.blocks else parts

"""The front of a package's blocks, as listed in its manifest (CrowdHMTware III-D2)."""

from collections.abc import Sequence

import numpy as np

from executors.algorithms.adaptivenet.space import SupernetSpace, VariantSpan
from executors.algorithms.crowdhmt.front import front
from executors.structure import analyse
from executors.structure.blocks import Block
from mistify.costs.catalogue import HOST
from mistify.costs.energy import energy
from mistify.costs.quantization import Quantization
from mistify.package.blocks import NetworkEstimate


def estimates(blocks: Sequence[Block]) -> list[NetworkEstimate]:
    """Return the best networks by loss, latency, energy and bytes of the weights, lowest loss first.

    Args:
        blocks: Blocks with an estimate of their loss, the original ones first.
    """
    places = tuple(VariantSpan(block.name, block.start, block.span) for block in blocks)
    space = SupernetSpace(places, max(place.end for place in places))
    costs = [analyse(block.model).network() for block in blocks]
    energies = [energy(cost, Quantization.NONE, HOST) for cost in costs]
    objectives = np.array(
        [
            (
                block.estimate.loss if block.estimate else 0.0,
                HOST.latency_ms(cost),
                used.mj,
                cost.weight_bytes(),
            )
            for block, cost, used in zip(blocks, costs, energies, strict=True)
        ]
    )
    networks = []
    for subnet in front(space, objectives, np.random.default_rng(0)):
        loss, latency_ms, energy_mj, _ = objectives[list(subnet)].sum(0).tolist()
        networks.append(
            NetworkEstimate(
                files=tuple(blocks[number].file for number in subnet),
                loss=loss,
                latency_ms=latency_ms,
                energy_mj=energy_mj,
                energy_origin=energies[0].origin,
            )
        )
    return networks

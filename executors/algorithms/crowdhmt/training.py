"""Training of a supernet whose variants are of many families: those that others surpass are dropped."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from executors.algorithms.adaptivenet.space import SupernetSpace
from executors.algorithms.adaptivenet.training import SupernetTraining
from executors.structure import analyse, model_of
from mistify.costs.catalogue import HOST


class FamilyTraining(SupernetTraining):
    """The training of a supernet with several operator families (CrowdHMTware III-A).

    Families with equal multiply-adds have very different latencies, so paths are drawn by latency. Each
    variant has fewer training steps the more there are. So variants that another one in their place surpasses
    after distillation, in loss and in all costs, are not trained further.
    """

    def costs(self) -> Sequence[float]:
        """Return the predicted latency of each variant on the host."""
        latencies: list[float] = self._costs()[:, 0].tolist()
        return latencies

    def worthwhile(self, losses: Sequence[float]) -> Collection[int]:
        """Return the variants that no other one in their place surpasses."""
        figures = np.column_stack([losses, self._costs()])
        return unsurpassed(self._supernet.space, figures)

    def _costs(self) -> npt.NDArray[np.float64]:
        """Return latency in milliseconds and multiply-adds [variants, 2]."""
        supernet = self._supernet
        networks = [
            analyse(model_of(supernet.graph_of(number))).network()
            for number in range(len(supernet.space.places))
        ]
        return np.array([(HOST.latency_ms(network), network.flops) for network in networks])


def unsurpassed(space: SupernetSpace, figures: npt.NDArray[np.float64]) -> list[int]:
    """Return the variants that neither another variant in their place nor the replaced blocks surpass.

    What surpasses a variant is at least as good in all figures, and better in one. Of equal variants, the
    first one is returned. If all are surpassed, all are returned.

    Args:
        figures: Figures of each variant, of which less is better [variants, figures].
    """
    variants = range(space.blocks, len(space.places))

    def is_surpassed(number: int) -> bool:
        place, own = space.places[number], figures[number]
        others = [n for n in variants if n != number and space.places[n].replaces_the_same(place)]
        if any(np.array_equal(figures[n], own) for n in others if n < number):
            return True
        rivals = [*figures[others], figures[place.start : place.end].sum(0)]
        return any(np.all(rival <= own) and np.any(rival < own) for rival in rivals)

    return [number for number in variants if not is_surpassed(number)] or list(variants)

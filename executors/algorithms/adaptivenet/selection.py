"""The subnet of a goal: the one that loses least within its limits (AdaptiveNet 5.1)."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.adaptivenet.space import Subnet
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.contract.assignment import Assignment
from executors.outputs.objectives import objectives_of, predictions
from executors.structure import analyse, model_of
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs, exceeded
from mistify.package.block_losses import corrected_losses

#: Validation examples by which subnets are scored.
_SCORED: Final = 500

#: How often subnets within the limits are scored for a goal, and how many at a time.
_ROUNDS: Final = 4
_AT_ONCE: Final = 4

#: What is left of the limits on sums where no candidate is within those on the whole, and how often.
_TIGHTER: Final = 0.97
_ATTEMPTS: Final = 10


class Scorer:
    """Scores subnets by the distance of their outputs from those of the network itself.

    Args:
        source: The original network.
    """

    def __init__(self, supernet: Supernet, source: keras.Model, setup: TrainingSetup) -> None:
        self._supernet = supernet
        self._data = setup.validation.sample(_SCORED)
        self._objectives = objectives_of(source, setup.train, setup.settings)
        outputs = Evaluation(source).outputs(self._data.inputs)
        self._wanted = predictions(self._objectives, outputs)
        self._least = self._loss(supernet.space.original)

    def lost(self, subnet: Subnet) -> float:
        """Return the mean divergence from the network's outputs, 0 for its own."""
        return self._loss(subnet) - self._least

    def _loss(self, subnet: Subnet) -> float:
        outputs = self._supernet.predictions(self._data.inputs, subnet)
        return sum(
            float(
                objective.distilled_loss(
                    tf.constant(outputs[name]), tf.constant(self._data.targets[name]),
                    tf.constant(self._wanted[name]), 1.0, 1.0,
                )
            )
            for name, objective in self._objectives.items()
        )  # fmt: skip


class Subnets:
    """The subnets of a trained supernet.

    A loss measured for one goal also serves all later goals.

    Args:
        losses: Loss that each of the supernet's variants adds by itself.
    """

    def __init__(self, supernet: Supernet, losses: Sequence[float]) -> None:
        self._supernet = supernet
        self._losses = losses
        self._networks = [
            analyse(model_of(supernet.graph_of(number))).network() for number in range(len(losses))
        ]
        self._scorer: Scorer | None = None
        self._scored: dict[Subnet, float] = {}

    def best(self, assignment: Assignment) -> keras.Model:
        """Return the subnet within an edge's limits that loses least; the cheapest where none is within."""
        limits, space = assignment.budget, self._supernet.space
        costs = [costs_of(network, assignment.profiles, only=limits) for network in self._networks]
        # What a network costs is not quite the sum of what its blocks do, such as the peak of its memory.
        whole = costs_of(assignment.source.network(), assignment.profiles, only=limits)
        sums = {axis: sum(costs[number][axis] for number in space.original) for axis in limits}
        parts = {axis: sums[axis] / whole[axis] if whole[axis] else 1.0 for axis in limits}
        scaled = {axis: limit * parts[axis] for axis, limit in limits.items()}
        if self._scorer is None:
            self._scorer = Scorer(self._supernet, model_of(assignment.source.graph), assignment.setup)
        for tightened in range(_ATTEMPTS):
            within = {axis: limit * _TIGHTER**tightened for axis, limit in scaled.items()}
            for subnet in self._promising(self._scorer, costs, within):
                model = model_of(self._supernet.graph(subnet))
                if self._holds(model, assignment):
                    return model
        shares = [max(cost[axis] / limit for axis, limit in scaled.items()) for cost in costs]
        return model_of(self._supernet.graph(space.cheapest(shares)))

    def _promising(self, scorer: Scorer, costs: Sequence[Costs], limits: Budget) -> list[Subnet]:
        """Return subnets whose costs, summed up, are within limits, those first that lose least.

        Subnets with the best sums of losses are scored, and the errors of the sums correct the losses of
        variants.
        """
        space = self._supernet.space
        for _ in range(_ROUNDS):
            losses = corrected(self._losses, self._scored, space.blocks)
            within = space.within(costs, losses, limits)
            new = islice((subnet for subnet in within if subnet not in self._scored), _AT_ONCE)
            self._scored |= {subnet: scorer.lost(subnet) for subnet in new}
        known = [
            subnet
            for subnet in self._scored
            if all(sum(costs[number][axis] for number in subnet) <= limit for axis, limit in limits.items())
        ]
        return sorted(known, key=self._scored.__getitem__)[: _ROUNDS * _AT_ONCE]

    def _holds(self, model: keras.Model, assignment: Assignment) -> bool:
        network, limits = analyse(model).network(), assignment.budget
        return not exceeded(costs_of(network, assignment.profiles, only=limits), limits)


def corrected(alone: Sequence[float], scored: Mapping[Subnet, float], blocks: int) -> list[float]:
    """Return the losses of variants, corrected so that their sums come closer to those measured.

    Args:
        alone: Loss that each variant adds by itself, in the order of their numbers.
        scored: Subnet -> measured loss.
        blocks: Number of blocks of the original network, which come first and lose nothing.
    """
    has = np.zeros((len(scored), len(alone)))
    for row, subnet in zip(has, scored, strict=True):
        row[[number for number in subnet if number >= blocks]] = 1
    return [float(loss) for loss in corrected_losses(alone, has, list(scored.values()))]

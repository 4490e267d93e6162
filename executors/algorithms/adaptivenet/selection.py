"""The selection of a goal's subnet: the one with the lowest loss within its limits (AdaptiveNet 5.1)."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.adaptivenet.space import Subnet
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.contract.assignment import Assignment
from executors.data import Array
from executors.outputs.objectives import objectives_of, predictions
from executors.structure import analyse, model_of
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs, exceeded
from mistify.package.block_losses import corrected_losses

#: Validation examples used to score subnets.
_SCORING_EXAMPLES: Final = 500

#: Rounds of scoring candidates for a goal, and candidates per round.
_ROUNDS: Final = 4
_PER_ROUND: Final = 4

#: The factor by which limits on summed costs are tightened when no candidate meets the real limits, and the
#: maximum number of attempts.
_TIGHTENING: Final = 0.97
_ATTEMPTS: Final = 10


class Scorer:
    """A scorer of subnets by the divergence of their outputs from those of the original network.

    Args:
        source: The original network.
    """

    def __init__(self, supernet: Supernet, source: keras.Model, setup: TrainingSetup) -> None:
        self._supernet = supernet
        self._data = setup.validation.sample(_SCORING_EXAMPLES)
        self._objectives = objectives_of(source, setup.train, setup.settings)
        outputs = Evaluation(source).outputs(self._data.inputs)
        self._wanted = predictions(self._objectives, outputs)
        self._least = self._loss(supernet.space.original)

    def divergence(self, subnet: Subnet) -> float:
        """Return the mean divergence from the original network's outputs; 0 for that network itself."""
        return self._loss(subnet) - self._least

    def divergences_alone(self) -> list[float]:
        """Return the divergence of the network with each variant alone, in order."""
        all_outputs = self._supernet.predictions_alone(self._data.inputs)
        return [self._loss_of(outputs) - self._least for outputs in all_outputs]

    def _loss(self, subnet: Subnet) -> float:
        return self._loss_of(self._supernet.predictions(self._data.inputs, subnet))

    def _loss_of(self, outputs: Mapping[str, Array]) -> float:
        return sum(
            float(
                objective.distilled_loss(
                    tf.constant(outputs[name]), tf.constant(self._data.targets[name]),
                    tf.constant(self._wanted[name]), 1.0, 1.0,
                )
            )
            for name, objective in self._objectives.items()
        )  # fmt: skip


class LoadedSupernet:
    """A trained supernet, with what was compiled and measured for earlier goals.

    Args:
        losses: Loss added by each of the supernet's variants alone.

    Attributes:
        networks: The architecture of each block and variant, by number.
    """

    def __init__(self, supernet: Supernet, losses: Sequence[float]) -> None:
        self.supernet = supernet
        self.losses = losses
        self.networks = [
            analyse(model_of(supernet.graph_of(number))).network() for number in range(len(losses))
        ]
        self._scorer: Scorer | None = None
        self._divergences: dict[Subnet, float] = {}

    def divergence(self, subnet: Subnet, assignment: Assignment) -> float:
        """Return a subnet's mean divergence from the source's outputs, which is measured once.

        Args:
            assignment: Any edge of the supernet's source and data.
        """
        if self._scorer is None:
            self._scorer = Scorer(self.supernet, model_of(assignment.source.graph), assignment.setup)
        if subnet not in self._divergences:
            self._divergences[subnet] = self._scorer.divergence(subnet)
        return self._divergences[subnet]


class Subnets:
    """The subnets of a trained supernet.

    Losses measured for one goal are reused for later goals.
    """

    def __init__(self, loaded: LoadedSupernet) -> None:
        self._loaded = loaded
        self._scored: dict[Subnet, float] = {}

    def best(self, assignment: Assignment) -> keras.Model:
        """Return the subnet with the lowest loss within an edge's limits, or else the cheapest one."""
        supernet, limits = self._loaded.supernet, assignment.budget
        space = supernet.space
        costs = [costs_of(network, assignment.profiles, only=limits) for network in self._loaded.networks]
        # The costs of a network differ slightly from the sum over its blocks, for example in peak memory.
        whole = costs_of(assignment.source.network(), assignment.profiles, only=limits)
        sums = {axis: sum(costs[number][axis] for number in space.original) for axis in limits}
        parts = {axis: sums[axis] / whole[axis] if whole[axis] else 1.0 for axis in limits}
        scaled = {axis: limit * parts[axis] for axis, limit in limits.items()}
        for tightened in range(_ATTEMPTS):
            within = {axis: limit * _TIGHTENING**tightened for axis, limit in scaled.items()}
            for subnet in self._promising(assignment, costs, within):
                model = model_of(supernet.graph(subnet))
                if self._holds(model, assignment):
                    return model
        shares = [max(cost[axis] / limit for axis, limit in scaled.items()) for cost in costs]
        return model_of(supernet.graph(space.cheapest(shares)))

    def _promising(self, assignment: Assignment, costs: Sequence[Costs], limits: Budget) -> list[Subnet]:
        """Return subnets whose summed costs are within the limits, in order of increasing loss.

        The subnets with the lowest predicted losses are scored. Prediction errors are used to correct the
        losses of variants.
        """
        space = self._loaded.supernet.space
        for _ in range(_ROUNDS):
            losses = corrected(self._loaded.losses, self._scored, space.blocks)
            within = space.within(costs, losses, limits)
            new = islice((subnet for subnet in within if subnet not in self._scored), _PER_ROUND)
            self._scored |= {subnet: self._loaded.divergence(subnet, assignment) for subnet in new}
        known = [
            subnet
            for subnet in self._scored
            if all(sum(costs[number][axis] for number in subnet) <= limit for axis, limit in limits.items())
        ]
        return sorted(known, key=self._scored.__getitem__)[: _ROUNDS * _PER_ROUND]

    def _holds(self, model: keras.Model, assignment: Assignment) -> bool:
        network, limits = analyse(model).network(), assignment.budget
        return not exceeded(costs_of(network, assignment.profiles, only=limits), limits)


def corrected(alone: Sequence[float], scored: Mapping[Subnet, float], blocks: int) -> list[float]:
    """Return the losses of variants, corrected so that their sums fit the measured losses better.

    Args:
        alone: Loss added by each variant alone, in the order of their numbers.
        scored: Subnet -> measured loss.
        blocks: Number of blocks of the original network, which come first and have a loss of 0.
    """
    has = np.zeros((len(scored), len(alone)))
    for row, subnet in zip(has, scored, strict=True):
        row[[number for number in subnet if number >= blocks]] = 1
    return [float(loss) for loss in corrected_losses(alone, has, list(scored.values()))]

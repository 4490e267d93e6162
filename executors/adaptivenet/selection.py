"""The subnet of a goal: the one that loses least within its limits (AdaptiveNet 4)."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

import keras
import tensorflow as tf

from executors.adaptivenet.space import Subnet
from executors.adaptivenet.supernet import Supernet
from executors.base import Assignment
from executors.structure import analyse, built
from executors.training.evaluation import Evaluation
from executors.training.objectives import objectives_of, predictions
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.budget import exceeded

#: Validation examples by which subnets are scored.
_SCORED: Final = 500

#: Subnets within the limits that are scored.
_CANDIDATES: Final = 8

#: What is left of the limits on sums where no candidate is within those on the whole, and how often.
_TIGHTER: Final = 0.97
_ROUNDS: Final = 10


class Scorer:
    """Tells what subnets lose: how far their outputs are from those of the network itself.

    Args:
        supernet: Whose subnets are scored.
        source: The network itself.
        setup: Has the data.
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

    Args:
        supernet: The supernet.
        losses: What each of its variants loses.
    """

    def __init__(self, supernet: Supernet, losses: Sequence[float]) -> None:
        self._supernet = supernet
        self._losses = losses
        self._networks = [
            analyse(built(supernet.graph_of(number))).network() for number in range(len(losses))
        ]
        self._scorer: Scorer | None = None

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
            self._scorer = Scorer(self._supernet, built(assignment.source.graph), assignment.setup)
        for tightened in range(_ROUNDS):
            within = {axis: limit * _TIGHTER**tightened for axis, limit in scaled.items()}
            candidates = islice(space.within(costs, self._losses, within), _CANDIDATES)
            models = {subnet: built(self._supernet.graph(subnet)) for subnet in candidates}
            held = [subnet for subnet, model in models.items() if self._holds(model, assignment)]
            if held:
                return models[min(held, key=self._scorer.lost)]
        shares = [max(cost[axis] / limit for axis, limit in scaled.items()) for cost in costs]
        return built(self._supernet.graph(space.cheapest(shares)))

    def _holds(self, model: keras.Model, assignment: Assignment) -> bool:
        network, limits = analyse(model).network(), assignment.budget
        return not exceeded(costs_of(network, assignment.profiles, only=limits), limits)

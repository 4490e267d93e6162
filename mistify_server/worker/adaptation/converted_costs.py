"""Memory and size read from the file of a network, converted as for packaging (paper 4.1)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import keras

from executors.timing import activity
from executors.training.setup import TrainingSetup
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import Budget, Costs
from mistify_server.worker.adaptation.latency import few_examples
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.file_costs import is_stored, stored_costs
from mistify_server.worker.resource_errors import suppress_conversion_errors

#: Reads the memory and size of a network's package from its file, by axis.
CostReader: TypeAlias = Callable[[keras.Model], Costs]


def cost_reader(
    budget: Budget, quantizations: Sequence[QuantizationConfig], setup: TrainingSetup, threads: int
) -> CostReader:
    """Return a function that converts networks as for packaging, and reads the costs from the files.

    If several packages share an axis, the larger cost counts. Quantization-aware training does not change
    costs. Nothing is converted unless such an axis is limited. A precision at which a network cannot be
    converted has no costs: packaging reports the reason.

    Args:
        quantizations: The precisions of the packages.
        setup: Training setup with the data for conversion.
        threads: Number of threads that run the packages.
    """

    @activity("measuring")
    def read(model: keras.Model) -> Costs:
        costs: Costs = {}
        for quantization in quantizations if limits_storage(budget) else ():
            with suppress_conversion_errors():
                examples = few_examples(model, setup.train, [quantization.precision])
                network = convert(model, quantization, examples)
                costs = _larger(costs, stored_costs(network, quantization, threads))
        return {axis: cost for axis, cost in costs.items() if axis in budget}

    return read


def largest_stored(files: Iterable[tuple[QuantizationConfig, bytes]], threads: int) -> Costs:
    """Return the costs of a network in its files, by axis; if several share an axis, the larger cost.

    Args:
        files: The precision, the types of inputs, and the content of each `.tflite`.
        threads: Number of threads that run the packages.
    """
    costs: Costs = {}
    for quantization, network in files:
        costs = _larger(costs, stored_costs(network, quantization, threads))
    return costs


def _larger(costs: Costs, others: Costs) -> Costs:
    return {**costs, **{axis: max(cost, costs.get(axis, cost)) for axis, cost in others.items()}}


def limits_storage(budget: Budget) -> bool:
    """Check whether a budget has limits on costs that are read from the file."""
    return any(is_stored(axis) for axis in budget)


def tightened(budget: Budget, foreseen: Costs, stored: Costs) -> Budget:
    """Return limits for predicted costs, tightened so that the file meets the budget.

    Args:
        foreseen: Costs of a network predicted from its layers.
        stored: Costs read from the network's file.
    """
    return {axis: limit * foreseen[axis] / stored.get(axis, foreseen[axis]) for axis, limit in budget.items()}

"""Measurement of a package's accuracy in LiteRT, at its own precision."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np

from executors.data import Dataset
from executors.data.storage import Array, Rows
from executors.outputs.metrics import output_scores, score
from executors.outputs.objectives import OutputObjective
from mistify.config.data.metric import OutputScore
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.packaging.measurement.comparison import require_finite
from mistify_server.worker.packaging.tflite.runner import BATCH, Runner

#: Maximum seconds for running examples.
_MAX_SECONDS = 120.0


@dataclass(frozen=True)
class MeasuredAccuracy:
    """The value of a metric on a part of the data, and the number of examples.

    Attributes:
        accuracy: The value of the metric that ranks networks.
        examples: Number of evaluated examples.
        outputs: Output -> score by that output's metric.
    """

    accuracy: float
    examples: int
    outputs: tuple[OutputScore, ...]

    @property
    def is_known(self) -> bool:
        """Return whether all figures are numbers: some metrics need examples of two classes."""
        return all(map(isfinite, (self.accuracy, *(own.value for own in self.outputs))))


def measure_accuracy(
    runner: Runner, data: Dataset, objectives: Mapping[str, OutputObjective], source: DataSource
) -> MeasuredAccuracy:
    """Run a package on data in random order, until all examples are done or the time is up.

    If a metric is undefined by then, continue until it is defined.

    Args:
        runner: The package, or one of its branches.
        objectives: Output -> its objective.
        source: The data source, which defines the metrics.

    Raises:
        MistifyError: CORRUPT_PACKAGE, an output is not finite.
    """
    order = np.random.default_rng(0).permutation(len(data))
    deadline = time.monotonic() + _MAX_SECONDS
    outputs: dict[str, Rows] = {name: Rows() for name in runner.outputs}
    at_once = runner.examples_at_once(BATCH)
    done = 0
    while True:
        batch = order[done : done + at_once]
        for name, output in runner({name: array[batch] for name, array in data.inputs.items()}).items():
            require_finite(name, output, batch)
            outputs[name].append(output)
        done += len(batch)
        is_last = done == len(order)
        if is_last or time.monotonic() >= deadline:
            targets = {name: array[order[:done]] for name, array in data.targets.items()}
            measured = _measured(outputs, targets, objectives, source)
            if is_last or measured.is_known:
                return measured


def _measured(
    rows: Mapping[str, Rows],
    targets: Mapping[str, Array],
    objectives: Mapping[str, OutputObjective],
    source: DataSource,
) -> MeasuredAccuracy:
    """Return the accuracy from the outputs and targets of some examples, both by name."""
    outputs: dict[str, Array] = {name: own.array() for name, own in rows.items()}
    overall = score(source.metric, objectives, outputs, targets)
    chosen = source.settings.metrics
    own_scores = output_scores(objectives, outputs, targets, chosen, labelled=source.labelled)
    return MeasuredAccuracy(overall, len(next(iter(targets.values()))), own_scores)

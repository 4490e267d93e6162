"""The accuracy of a package at its own precision, as measured in LiteRT."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from executors.data import Dataset
from executors.data.storage import Array, Rows
from executors.training.metrics import output_scores, score
from executors.training.objectives import Objective
from mistify.config.metric import OutputScore
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.packaging.tflite.runner import BATCH, Runner

#: Seconds after which no more examples are run.
_MAX_SECONDS = 120.0


@dataclass(frozen=True)
class MeasuredAccuracy:
    """The value of a metric on a part of the data, and the number of examples it is of.

    Attributes:
        accuracy: By the metric by which networks are compared.
        examples: How many were run.
        outputs: The score of each output by a metric of its own.
    """

    accuracy: float
    examples: int
    outputs: tuple[OutputScore, ...]


def measure_accuracy(
    runner: Runner, data: Dataset, objectives: Mapping[str, Objective], source: DataSource
) -> MeasuredAccuracy:
    """Run a package on some data, in random order, until all are done or time is up.

    Args:
        runner: The package, or one of its branches.
        data: The examples.
        objectives: What each output learns, by its name.
        source: Has the metrics.
    """
    order = np.random.default_rng(0).permutation(len(data))
    deadline = time.monotonic() + _MAX_SECONDS
    outputs: dict[str, Rows] = {name: Rows() for name in runner.outputs}
    at_once = runner.examples_at_once(BATCH)
    done = 0
    while done < len(order) and (not done or time.monotonic() < deadline):
        batch = order[done : done + at_once]
        for name, output in runner({name: array[batch] for name, array in data.inputs.items()}).items():
            outputs[name].append(output)
        done += len(batch)
    arrays: dict[str, Array] = {name: rows.array() for name, rows in outputs.items()}
    targets = {name: array[order[:done]] for name, array in data.targets.items()}
    chosen = source.settings.metrics
    own = output_scores(objectives, arrays, targets, chosen, labelled=source.labelled)
    return MeasuredAccuracy(score(source.metric, objectives, arrays, targets), done, own)

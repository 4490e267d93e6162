"""The quality table: scores of trained tasks by limit."""

from collections.abc import Sequence

from executors.algorithms.nnfactory.supernet import Supernet
from executors.algorithms.nnfactory.tasks import TaskDistribution
from executors.data import Dataset
from mistify.scenarios.quality import Quality


def measured_quality(
    supernet: Supernet, tasks: TaskDistribution, data: Dataset, limits: Sequence[float]
) -> Quality:
    """Return the scores of trained tasks within some limits, on held-out data."""
    names, scores = [], []
    for task in tasks.scored(data):
        assemblies = supernet.assemblies(task.encoded, limits)
        outputs = [supernet.outputs(task.data.inputs, assembly) for assembly in assemblies]
        names.append(task.name)
        scores.append(tuple(tasks.score(output, task) for output in outputs))
    return Quality(tasks=tuple(names), limits=tuple(limits), scores=tuple(scores))

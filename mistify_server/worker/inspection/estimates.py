"""What an inspection finds out about the edges to come (paper 4.1, 4.3)."""

from collections.abc import Collection
from math import log2
from time import perf_counter
from typing import Final

import keras
import numpy as np

from executors.base import AdaptationExecutor, Aptitude, Params, executor_class, executor_classes
from executors.data import Dataset
from executors.structure import Structure, copied, residual_blocks
from executors.structure.fingerprint import digest_of, kind_of
from executors.training.evaluation import evaluate
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.dataset import generated_count
from mistify.config.porting import AUTO
from mistify.costs.axes import costs_of
from mistify.costs.profiles import HardwareProfile
from mistify_server.tasks.estimates import PER_HALVING, Candidate, EdgeEstimates, Traits
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.params import params_of

#: Halvings of the costs between parent and goal that candidates are asked about.
_HALVINGS: Final = 8

#: Multiples of the widths at which costs are known: from this one down by this factor.
_WIDEST: Final = 2.0
_STEP: Final = 2**-0.5

#: Test examples on which the source is measured.
_EXAMPLES: Final = 500

#: Training steps that are timed at once, after as many untimed ones, until they have taken so many seconds.
_STEPS: Final = 5
_SECONDS: Final = 0.3

#: A learning rate, as a share of the highest, at which nothing diverges.
_HARMLESS: Final = 1e-6


def estimates_of(
    structure: Structure, task: InspectTask, profiles: Collection[HardwareProfile]
) -> EdgeEstimates:
    """What is known of a model and the algorithms for it without running anything.

    Args:
        structure: The model's.
        task: Which algorithm is asked for, with which settings.
        profiles: The hardware whose latency counts.
    """
    blocks = len(residual_blocks(structure.graph))
    params = params_of(task.algorithm, task.algorithm_config)
    asked = executor_classes() if task.algorithm == AUTO else {task.algorithm: executor_class(task.algorithm)}
    return EdgeEstimates(
        traits=Traits(model=digest_of(structure.graph), kind=kind_of(structure.graph), blocks=blocks),
        # There is nothing new in what the source itself says.
        source_steps=0 if generated_count(task.data.train) else params.source_steps,
        candidates={
            name: _candidate(found, params_of(name, task.algorithm_config), blocks)
            for name, found in asked.items()
            if found.aptitude is not None or name == task.algorithm
        },
        scaled=_scaled(structure, profiles),
    )


def measured(
    estimates: EdgeEstimates, model: keras.Model, setup: TrainingSetup, measures: Collection[str]
) -> EdgeEstimates:
    """The estimates with what can only be found out by running the source.

    Args:
        estimates: So far.
        model: The source.
        setup: What it would be trained on.
        measures: `accuracy`, `step`.
    """
    found: dict[str, float] = {}
    if "accuracy" in measures:
        found["accuracy"] = evaluate(model, _some(setup.test), setup.metric)
    if "step" in measures:
        found["step_seconds"] = _step_seconds(model, setup)
    return estimates.model_copy(update=found)


def _candidate(executor: type[AdaptationExecutor], params: Params, blocks: int) -> Candidate:
    aptitude = executor.aptitude or Aptitude()
    distances = (2 ** (place / PER_HALVING) for place in range(1, _HALVINGS * PER_HALVING + 1))
    return Candidate(
        gain=aptitude.gain + (aptitude.gain_by_depth if blocks else 0.0),
        preparing=aptitude.preparing,
        edge=aptitude.edge,
        adapting=(0, *(executor.adapting_steps(params, distance) for distance in distances)),
        tune_steps=params.tune_steps,
        max_steps=params.max_steps,
    )


def _scaled(structure: Structure, profiles: Collection[HardwareProfile]) -> tuple[dict[str, float], ...]:
    """Costs with all channel groups scaled alike, from a single unit in each to four times the source's."""
    narrowest = _WIDEST * max(structure.widths.values(), default=1)
    count = int(log2(narrowest) / -log2(_STEP)) + 2
    found = []
    for place in range(count):
        scale = _WIDEST * _STEP**place
        widths = {name: max(1, round(width * scale)) for name, width in structure.widths.items()}
        found.append(dict(costs_of(structure.network(widths), profiles)))
    return tuple(reversed(found))


def _some(data: Dataset) -> Dataset:
    """The same few examples each time."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(data))[:_EXAMPLES])
    return data.subset(chosen)


def _step_seconds(model: keras.Model, setup: TrainingSetup) -> float:
    """The least of several, as the machine may do other work, too."""
    trainer = Trainer(copied(model), setup, 0)
    schedule = np.full(_STEPS, _HARMLESS, np.float32)
    trainer.train(schedule)
    taken: list[float] = []
    while sum(taken) < _SECONDS:
        start = perf_counter()
        trainer.train(schedule)
        taken.append(perf_counter() - start)
    return min(taken) / _STEPS

"""The two stages in which a supernet is trained, and which may be interrupted (NN-Factory 3.4)."""

import io
from dataclasses import dataclass, replace
from typing import Any, Final

import keras
import numpy as np

from executors.algorithms.nnfactory.answered_tasks import AnsweredTasks
from executors.algorithms.nnfactory.answers import answering
from executors.algorithms.nnfactory.assembler import AssemblerShape, starting_worth
from executors.algorithms.nnfactory.class_tasks import ClassTasks
from executors.algorithms.nnfactory.gates import enough_units, gated_groups
from executors.algorithms.nnfactory.objective import AnswersObjective, Curriculum, GatesObjective
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.scoring import measured_quality
from executors.algorithms.nnfactory.supernet import Supernet, restore, weights_of
from executors.algorithms.nnfactory.tasks import TaskDistribution
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.structure import model_of
from executors.structure.signature import Signature, signature_of
from executors.training.objective import TrainingObjective
from executors.training.optimizers import ADAM, rate_for_adam
from executors.training.setup import TrainingSetup
from executors.training.trainer import OptimizerState, Trainer, cosine
from mistify.scenarios.quality import measured_limits

#: Parts of a stage after each of which its training can be taken up again, and steps between two reports.
_PARTS: Final = 8
_REPORT_STEPS: Final = 100

#: Keys of the saved training of each stage, and of the finished supernet.
_ANSWERS, _GATES, _FINISHED = "answers", "gates", "supernet"

#: Learning rate of Adam, unless the settings have one.
_RATE: Final = 2e-3

#: The share of the second stage after which the lowest limit is reached.
_CURRICULUM: Final = 0.4

#: The fewest open units of a limit that is trained, with gates alone and with scales and shifts.
_LEAST_OPEN: Final = {False: 24, True: 8}


@dataclass(frozen=True)
class _Stage:
    """A stage of the training.

    Attributes:
        part: Name under which its state is kept.
        model: Everything that learns.
        objective: The loss and the data of a step.
        first: Number of steps of earlier stages.
        steps: Number of its steps.
        total: Number of steps of all stages.
    """

    part: str
    model: keras.Model
    objective: TrainingObjective
    first: int
    steps: int
    total: int


class FactoryTraining:
    """The training of a supernet: a network learns all answers, then gets gates and learns with them.

    Args:
        assignment: Provides source, data and seed.
        progress: Receives the progress and the parts that are done.
        tasks: The tasks; by default those that the data answer, or else sets of classes.
    """

    def __init__(
        self,
        assignment: Assignment,
        params: NNFactoryParams,
        progress: PreparationProgress,
        tasks: TaskDistribution | None = None,
    ) -> None:
        self._source = assignment.source
        self._seed = assignment.seed
        self._params = params
        self._progress = progress
        self._tasks = tasks
        rate = rate_for_adam(assignment.setup.params, _RATE)
        own = {"optimizer": ADAM, "learning_rate": rate, "batch_size": params.batch_size}
        setup = assignment.setup
        self._setup = replace(setup, params=setup.params.model_copy(update=own))

    def finished(self) -> bytes:
        """Train to the end, and return the supernet with its quality; empty where units are too few."""
        groups = gated_groups(self._source)
        if not enough_units(groups):
            return b""
        return self._progress.part(_FINISHED) or self._trained(sum(group.units for group in groups))

    def _trained(self, units: int) -> bytes:
        """Return the supernet of a source with so many units."""
        params, setup, seed = self._params, self._setup, self._seed
        signature = signature_of(model_of(self._source.graph))
        tasks = self._tasks or _tasks(setup, signature, params.extra_tasks)
        shape = AssemblerShape(tasks.space.size, params.encoder, params.gaters, params.modulate)
        first = params.answer_steps if tasks.answers.size else 0
        supernet = Supernet(
            self._source,
            shape,
            tasks.space,
            classes=tasks.classes,
            worth=None if first else starting_worth(self._source),
        )
        if first:
            self._train(self._answers(supernet, tasks))
        least = max(params.least_limit, _LEAST_OPEN[params.modulate] / units)
        curriculum = Curriculum(least, round(_CURRICULUM * params.gate_steps))
        gates = GatesObjective(
            supernet, tasks, setup, curriculum, weight=params.gate_weight, noise=params.noise, seed=seed
        )
        steps = params.gate_steps
        self._train(_Stage(_GATES, supernet.model, gates, first, steps, first + steps))
        supernet.quality = measured_quality(supernet, tasks, setup.validation, measured_limits(least))
        content = supernet.saved()
        self._progress.keep(_FINISHED, content)
        return content

    def _answers(self, supernet: Supernet, tasks: TaskDistribution) -> _Stage:
        """Return the stage in which a network without closed gates learns all answers."""
        model = answering(supernet.gated, self._source, tasks.answers.shape[1])
        objective = AnswersObjective(supernet, model, tasks, self._setup, self._seed)
        assembler = supernet.assembler
        both = keras.Model([*model.inputs, *assembler.inputs], [*model.outputs, *supernet.model.outputs[1:]])
        steps = self._params.answer_steps
        return _Stage(_ANSWERS, both, objective, 0, steps, steps + self._params.gate_steps)

    def _train(self, stage: _Stage) -> None:
        """Train a stage, resuming an interrupted one."""
        done, state = self._restored(stage)
        if done == stage.steps:
            return
        schedule, part = cosine(stage.steps), -(-stage.steps // _PARTS)
        trainer = Trainer(stage.model, self._setup, self._seed, objective=stage.objective)
        while done < stage.steps:
            # Each part begins as it does after an interruption, so that both end at the same weights.
            trainer.restart(self._seed + stage.first + done, state)
            end = min(done + part, stage.steps)
            while done < end:
                after = min(done + _REPORT_STEPS, end)
                loss = trainer.train(schedule[done:after])
                done = after
                self._progress.report(stage.first + done, stage.total, loss)
            state = None if done == stage.steps else trainer.optimizer_state()
            self._progress.keep(stage.part, _saved(stage.model, done, state))

    def _restored(self, stage: _Stage) -> tuple[int, OptimizerState | None]:
        """Return how many steps of a stage are done, and the trainer's state; give the model its weights."""
        part = self._progress.part(stage.part)
        if not part:
            return 0, None
        with np.load(io.BytesIO(part), allow_pickle=False) as arrays:
            restore(stage.model, arrays)
            return int(arrays["done"]), OptimizerState.from_flat(dict(arrays))


def _tasks(setup: TrainingSetup, signature: Signature, extra: float) -> TaskDistribution:
    """Return the tasks of the data: those that have answers, or else sets of classes."""
    if setup.train.space is not None:
        return AnsweredTasks(setup.train, signature, setup.settings, extra)
    return ClassTasks(setup.train, signature, setup.settings)


def _saved(model: keras.Model, done: int, state: OptimizerState | None) -> bytes:
    """Return the weights of a model and the state of its training as bytes."""
    file = io.BytesIO()
    arrays: dict[str, Any] = weights_of(model) | (state.flat() if state else {})
    np.savez(file, done=np.array(done), **arrays)
    return file.getvalue()

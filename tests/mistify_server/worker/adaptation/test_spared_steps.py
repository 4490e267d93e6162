"""Networks that were not cut, and have little loss left or a source that has learned, are not tuned."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.data import Dataset
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.targets import Target
from mistify.config.task import TaskConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import LATENCY
from mistify_server.worker.adaptation.edge import run_edge
from tests.mistify_server.worker.adaptation.edges import Still, never
from tests.mistify_server.worker.adaptation.machines import no_file_costs
from tests.support.targets import overall

PARAMS = Params(source_steps=39, tune_steps=40, max_steps=100)


class Uncut(Still):
    """An executor that reports the costs of the network, which are the source's."""

    def measure(self) -> dict[str, float]:
        return dict(costs_of(analyse(self.trainer.model).network()))


class Measured(Uncut):
    """An executor whose profile of this machine has been corrected by a measurement."""

    def measure(self) -> dict[str, float]:
        return super().measure() | {LATENCY: 3.0}


def classifier(certainty: float) -> tuple[keras.Model, TrainingSetup]:
    """Return a network that is right on all data, and more or less certain of it."""
    inputs = keras.Input((1,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(2, name="y")(inputs))
    model.set_weights([certainty * np.array([[-1.0, 1.0]]), np.zeros(2)])
    x = np.random.default_rng(0).choice([-1.0, 1.0], (200, 1)).astype(np.float32)
    data = Dataset({"x": x}, {"y": (x[:, 0] > 0).astype(np.int64)})
    return model, TrainingSetup(data, data, None, TrainingParams(batch_size=20, distillation=0.0))


@pytest.mark.parametrize(
    ("executor", "certainty", "targets", "has_labels", "steps"),
    [
        (Still, 9.0, (), True, 40),
        (Uncut, 9.0, (), True, 0),
        (Measured, 9.0, (), True, 0),
        (Uncut, 9.0, (), False, 40),
        (Uncut, 0.1, (), True, 40),
        (Uncut, 9.0, overall(1.1), True, 100),
    ],
)
def test_a_network_is_tuned_unless_nothing_is_left_to_gain(
    executor: type[AdaptationExecutor],
    certainty: float,
    targets: tuple[Target, ...],
    has_labels: bool,
    steps: int,
) -> None:
    """A network without targets is tuned for one round, others up to the limit."""
    model, setup = classifier(certainty)
    setup = replace(setup, has_validation_labels=has_labels)
    assignment = Assignment(model, {"flops": 9.0}, (), setup, 0, analyse(model))
    outcome = run_edge(
        executor(PARAMS), assignment, PARAMS, targets, lambda *_: None, measure=never, read=no_file_costs
    )
    assert outcome.steps == steps
    assert outcome.spared == (0 if steps else 40)


@pytest.mark.parametrize(
    ("executor", "task", "steps"),
    [(Uncut, None, 0), (Still, None, 40), (Uncut, TaskConfig(classes=["a", "b"]), 40)],
)
def test_an_uncut_network_is_not_tuned_after_a_source_that_was_tuned_for_as_long(
    executor: type[AdaptationExecutor], task: TaskConfig | None, steps: int
) -> None:
    """The source was tuned for everything, not for a task."""
    params = PARAMS.model_copy(update={"source_steps": 40})
    model, setup = classifier(0.1)
    assignment = Assignment(model, {"flops": 9.0}, (), setup, 0, analyse(model), task=task)
    outcome = run_edge(
        executor(params), assignment, params, (), lambda *_: None, measure=never, read=no_file_costs
    )
    assert (outcome.steps, outcome.spared) == (steps, 40 - steps)

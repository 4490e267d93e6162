"""Edges whose networks are slices of a prepared one: nothing is trained or converted."""

from collections.abc import Mapping

import keras

from executors.contract.assignment import Assignment
from executors.contract.params import Params
from executors.outputs.objectives import objectives_of
from executors.structure import analyse
from executors.timing import activity
from executors.training.setup import TrainingSetup
from mistify.config.data.targets import Scores, missed
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import Costs
from mistify.jobs.formatting import excess
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import AdaptResult
from mistify_server.tasks.tasks import AdaptTask
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.adaptation.slices import measured_slice, slice_meter
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.conversion.cuttable import FLOAT32, CuttableNetwork, NotCuttableError
from mistify_server.worker.packaging.measurement.accuracy import measure_accuracy
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.prepared_conversions import PreparedConversions
from mistify_server.worker.training_setups import TrainingSetups


class SliceEdges:
    """Takes the networks of goals out of prepared ones, for algorithms that have slices.

    Args:
        checkpoints: Stores networks.
        setups: Prepares data.
        conversions: Converts the networks from which slices are cut.
        on_progress: Receives the progress.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        setups: TrainingSetups,
        conversions: PreparedConversions,
        on_progress: OnProgress,
    ) -> None:
        self._checkpoints = checkpoints
        self._setups = setups
        self._conversions = conversions
        self._on_progress = on_progress

    def adapt(self, task: AdaptTask, params: Params, setup: TrainingSetup) -> AdaptResult | None:
        """Return the best slice for a goal; None if its network has to be adapted in another way.

        Args:
            params: The settings of the algorithm.
            setup: The data of the goal's task.
        """
        if params.tune_steps:
            return None
        choices = self._setups.executor(task.recipe, params).slices(self._assignment(task, params, setup))
        networks = self._converted(task, params) if choices else {}
        if not networks:
            return None
        profiles, at_each = task.recipe.profiles, [(each, networks[each]) for each in task.quantizations]
        measure = slice_meter(at_each, task.budget, profiles)
        chosen, reading = measured_slice(choices, task.budget, profiles, measure)
        with activity("cutting"):
            model, float32 = chosen.network(), networks[FLOAT32].cut(chosen.units)
        costs = reading.costs(analyse(model).network(), profiles)
        scores = _scores(model, float32, task, setup)
        report = reporter(self._on_progress, task.recipe.data.validation_metric, task.budget)
        report(ProgressUpdate("cutting", 1, 1, costs, scores.overall))
        reason = _reason(task, costs, scores)
        return AdaptResult(
            checkpoint=self._checkpoints.save_slice(model, chosen.units),
            costs=dict(costs),
            accuracy=scores.overall,
            output_scores=scores.outputs,
            met=not reason,
            reason=reason,
            steps=0,
        )

    def _assignment(self, task: AdaptTask, params: Params, setup: TrainingSetup) -> Assignment:
        recipe = task.recipe
        return Assignment(
            model=self._setups.teacher(recipe, task.task),
            budget=task.budget,
            profiles=recipe.profiles,
            setup=setup,
            seed=recipe.seed,
            source=self._setups.source(recipe, params, task.task),
            prepared=self._checkpoints.load_prepared(recipe.prepared),
            task=task.task,
        )

    def _converted(self, task: AdaptTask, params: Params) -> Mapping[QuantizationConfig, CuttableNetwork]:
        """Return the networks to cut from, at the precisions of the packages and in float32.

        They are empty if slices cannot be cut out of one of them.
        """
        precisions = dict.fromkeys((*task.quantizations, FLOAT32))
        try:
            return {each: self._conversions.cuttable(task.recipe, params, each) for each in precisions}
        except NotCuttableError:
            return {}


@activity("measuring")
def _scores(model: keras.Model, network: bytes, task: AdaptTask, setup: TrainingSetup) -> Scores:
    """Return the scores of a network in float32 on the validation data.

    Args:
        model: The network.
        network: Content of its `.tflite`.
    """
    objectives = objectives_of(model, setup.train)
    data = task.recipe.with_settings(setup.settings).data
    measured = measure_accuracy(Runner(network), setup.validation, objectives, data)
    return Scores(measured.accuracy, measured.outputs)


def _reason(task: AdaptTask, costs: Costs, scores: Scores) -> str:
    """Describe the limits and the targets that a slice misses; empty if it meets the goal."""
    if over := excess(costs, task.budget):
        return f"{over} with the smallest slice for {task.task}"
    short = missed(task.targets, scores)
    return f"{short} on the validation data" if short else ""

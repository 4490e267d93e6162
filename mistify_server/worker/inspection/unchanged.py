"""Inspection of a source that cannot be edited: its costs are read from its converted network."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from executors.outputs.metrics import output_metrics
from executors.outputs.objectives import objectives_for
from executors.sources.contract import SourceModel
from mistify.config.data.dataset import generated_count
from mistify.config.data.metric import Metric
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, hardware_of
from mistify.costs.profiles import by_name
from mistify.errors import Problem
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.adaptation.calibration import at_each_precision, calibrated_by
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.description.description import description_of
from mistify_server.worker.inspection.loading import InspectedData
from mistify_server.worker.packaging.conversion.converter import convert_unedited
from mistify_server.worker.packaging.tflite.costs import network_cost
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.pseudo_labels import Outputs

#: Settings of the data that affect a network or its training.
_UNUSED: Final = ("scale", "augment", "class_weights")


def inspect_unchanged(
    source: SourceModel, task: InspectTask, cache: SourceCache, problems: ProblemCollector
) -> Inspection:
    """Return the costs of a source that cannot be edited, with all problems.

    Args:
        cache: Loads the data.
        problems: The problems found so far; further ones are added.
    """
    recipe = task.recipe
    problems.add(_unused_settings(recipe.data))
    costs: Costs = {}
    data = None
    profiles = recipe.profiles
    network = problems.load("model", lambda: convert_unedited(source.export()))
    if network is not None:
        cost = problems.load("model", lambda: network_cost(network))
        if cost is not None:
            profiles = at_each_precision(calibrated_by(profiles, cost, network))
            costs = costs_of(cost, profiles)
        runner = None if _generated(recipe.data) else problems.load("model", lambda: Runner(network))
        if runner is not None:
            data = _inspect_data(cache, problems, recipe.data, source, runner.run_all)
    return Inspection(
        costs=dict(costs),
        # Another precision may be faster: measurements decide about latency.
        floor={axis: cost for axis, cost in costs.items() if not hardware_of(axis)},
        adaptable=False,
        hardware=by_name(profiles),
        metric=data and data[0],
        metrics=dict(data[1]) if data else {},
        class_counts=data[2].class_counts if data else (),
        left_out=data[2].left_out if data else (),
        problems=tuple(problems.problems),
    )


def _inspect_data(
    cache: SourceCache, problems: ProblemCollector, data: DataSource, source: SourceModel, outputs: Outputs
) -> tuple[Metric, Mapping[str, Metric], InspectedData] | None:
    """Return the metric that ranks networks, the outputs' metrics, and the data; collect problems."""
    inspected = InspectedData(cache, problems, data, source.signature, outputs)
    loaded = inspected.load()
    if loaded is None:
        return None
    train = loaded.train
    objectives = objectives_for(source.signature, train)
    metric = inspected.checked_metric(loaded, objectives)
    describing = partial(description_of, data.settings, source.signature, objectives, train)
    problems.load("dataset", describing)
    own_metrics = output_metrics(objectives, train.targets, data.settings.metrics, labelled=data.labelled)
    return metric, own_metrics, inspected


def _unused_settings(data: DataSource) -> list[Problem]:
    """Return problems with data settings that do not apply to such a source."""
    settings = {f"dataset.{name}": getattr(data.settings, name) for name in _UNUSED}
    unused = {place: str(value) for place, value in settings.items() if value is not None}
    unused |= _generated(data)
    if data.unlabelled and data.train:
        unused["dataset.unlabelled"] = data.unlabelled
    expected = "no such setting for a model without Keras structure, which is neither changed nor trained"
    return [Problem(place, value, expected, "leave it out, or give data") for place, value in unused.items()]


def _generated(data: DataSource) -> dict[str, str]:
    """Return the parts of the data that are to be generated."""
    parts = {f"dataset.{part}": getattr(data, part) for part in ("train", "test")}
    return {place: name for place, name in parts.items() if name and generated_count(name)}

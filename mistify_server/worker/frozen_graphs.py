"""Tasks with graphs without Keras structure, which are packaged unchanged, at any precision.

Their costs are those of the converted network. There is nothing to train and nothing to cut: the source is
the checkpoint of every goal, and what LiteRT measures decides whether a goal is met.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from executors.data import Dataset, HeldOut
from executors.inspection.directories import is_graph
from executors.sources.graph.frozen_graph import FrozenGraph
from executors.timing import activity
from executors.training.metrics import output_metrics
from executors.training.output_objectives import objectives_for
from mistify.config.data.dataset import generated_count
from mistify.config.data.metric import Metric
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, hardware_of
from mistify.costs.profiles import by_name
from mistify.errors import Problem
from mistify.jobs.job import ProgressUpdate
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import AdaptResult, Inspection, PackageResult, ReferenceResult, SourceResult
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import AdaptTask, InspectTask, PackageTask, ReferenceTask, SourceTask, Task
from mistify_server.worker.adaptation.calibration import at_each_precision, calibrated_by
from mistify_server.worker.answers import Outputs, SourceAnswers
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.description.description import description_of
from mistify_server.worker.inspection.loading import InspectedData
from mistify_server.worker.packaging.assemble import store_package
from mistify_server.worker.packaging.frozen_graphs import convert_graph, package_graph
from mistify_server.worker.packaging.measurement.accuracy import MeasuredAccuracy, measure_accuracy
from mistify_server.worker.packaging.measurement.reference import measure_reference
from mistify_server.worker.packaging.tflite.costs import network_cost
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.params import params_of

#: Of the artifacts that are frozen graphs; checkpoints of Keras have another one.
_SUFFIX: Final = ".pb"

#: Settings of the data that change a Keras model, or how one is trained.
_UNUSED: Final = ("scale", "augment", "class_weights")


class GraphRunner:
    """Does tasks with graphs, one at a time."""

    def __init__(
        self, artifacts: Artifacts, cache: SourceCache, checkpoints: Checkpoints, report: OnProgress
    ) -> None:
        self._artifacts = artifacts
        self._cache = cache
        self._answers = SourceAnswers(cache, checkpoints, report)
        self._report = report
        self._graph = lru_cache(maxsize=2)(self._load)
        self._network = lru_cache(maxsize=2)(self._convert)

    def takes(self, task: Task) -> bool:
        """Return whether the model of a task is a graph."""
        if isinstance(task, InspectTask | SourceTask):
            return task.model.path is not None and is_graph(Path(task.model.path))
        return task.teacher.endswith(_SUFFIX)

    def run(self, task: Task) -> Inspection | SourceResult | AdaptResult | PackageResult | ReferenceResult:
        """Do a task.

        Raises:
            MistifyError: The user's model, data or settings cannot be used, or a package failed its checks.
        """
        if isinstance(task, InspectTask):
            return self._inspect(task)
        if isinstance(task, SourceTask):
            return self._prepare(task)
        if isinstance(task, AdaptTask):
            return self._adapt(task)
        if isinstance(task, PackageTask):
            return self._package(task)
        if isinstance(task, ReferenceTask):
            return self._reference(task)
        raise TypeError(f"a graph is packaged unchanged; the {task.kind} task would change it")

    def _inspect(self, task: InspectTask) -> Inspection:
        problems = ProblemCollector()
        problems.load("algorithm.config", lambda: params_of(task.algorithm, task.algorithm_config))
        problems.add(_unused_settings(task.data))
        graph = problems.load("model", lambda: self._cache.graph(task.model))
        costs: Costs = {}
        data = None
        profiles = tuple(task.hardware.values())
        network = None if graph is None else problems.load("model", lambda: convert_graph(graph))
        if graph is not None and network is not None:
            cost = problems.load("model", lambda: network_cost(network))
            if cost is not None:
                profiles = at_each_precision(calibrated_by(profiles, cost, network))
                costs = costs_of(cost, profiles)
            runner = None if _generated(task.data) else problems.load("model", lambda: Runner(network))
            if runner is not None:
                data = self._inspect_data(problems, task.data, graph, runner.run_all)
        return Inspection(
            costs=dict(costs),
            # Another precision may be faster: latency is decided by measuring.
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
        self, problems: ProblemCollector, data: DataSource, graph: FrozenGraph, outputs: Outputs
    ) -> tuple[Metric, Mapping[str, Metric], InspectedData] | None:
        """Return the metric to compare networks by, those of outputs, and the data; add problems."""
        inspected = InspectedData(self._cache, problems, data, graph.signature, outputs)
        loaded = inspected.load()
        if loaded is None:
            return None
        train = loaded.train
        objectives = objectives_for(graph.signature, train)
        metric = inspected.checked_metric(loaded, objectives)
        describing = partial(description_of, data.settings, graph.signature, objectives, train)
        problems.load("dataset", describing)
        own_metrics = output_metrics(objectives, train.targets, data.settings.metrics, labelled=data.labelled)
        return metric, own_metrics, inspected

    def _prepare(self, task: SourceTask) -> SourceResult:
        graph = self._cache.graph(task.model)
        artifact = self._artifacts.put(graph.content, _SUFFIX)
        costs = costs_of(network_cost(self._network(artifact)), tuple(task.hardware.values()))
        outputs = Runner(self._network(artifact)).run_all
        data = self._answers.added_by_outputs(task.data, graph.signature, outputs)
        self._answers.check(data, graph.signature)
        accuracy = self._measured(artifact, data).accuracy
        return SourceResult(
            source_costs=dict(costs),
            source_accuracy=accuracy,
            metric=task.data.metric,
            teacher=artifact,
            teacher_accuracy=accuracy,
            root=artifact,
            root_costs=dict(costs),
            steps=0,
            data=None if data == task.data else data,
        )

    def _adapt(self, task: AdaptTask) -> AdaptResult:
        costs = costs_of(network_cost(self._network(task.parent)), tuple(task.hardware.values()))
        measured = self._measured(task.parent, task.data)
        return AdaptResult(
            checkpoint=task.parent,
            costs=dict(costs),
            accuracy=measured.accuracy,
            output_scores=measured.outputs,
            met=True,
            reason="",
            steps=0,
        )

    @activity("packaging")
    def _package(self, task: PackageTask) -> PackageResult:
        self._report(ProgressUpdate(stage="packaging", step=0, total_steps=1, metric=task.data.metric))
        graph = self._graph(task.checkpoint)
        train, validation = self._learning(task.data, graph)
        held_out = HeldOut(validation, self._cache.data(parts_of(task.data, graph.signature)[1]))
        return store_package(package_graph(graph, task, train, held_out), task, self._artifacts)

    @activity("measuring")
    def _reference(self, task: ReferenceTask) -> ReferenceResult:
        """Measure the graph, which nothing has tuned, on the test data."""
        graph, network = self._graph(task.teacher), self._network(task.teacher)
        train, _ = self._learning(task.data, graph)
        test = self._cache.data(parts_of(task.data, graph.signature)[1])
        objectives = objectives_for(graph.signature, train)
        return measure_reference(network, network, test, objectives, data=task.data, threads=task.threads)

    @activity("measuring")
    def _measured(self, artifact: str, data: DataSource) -> MeasuredAccuracy:
        """Return the accuracy of the graph on the validation data, in float32, in LiteRT."""
        graph = self._graph(artifact)
        train, validation = self._learning(data, graph)
        objectives = objectives_for(graph.signature, train)
        runner = Runner(self._network(artifact))
        return measure_accuracy(runner, validation, objectives, data)

    def _learning(self, data: DataSource, graph: FrozenGraph) -> tuple[Dataset, Dataset]:
        """Return the training and the validation data."""
        return self._cache.learning(parts_of(data, graph.signature)[0])

    @activity("loading")
    def _load(self, artifact: str) -> FrozenGraph:
        return FrozenGraph.read(self._artifacts.intact(artifact).read_bytes())

    def _convert(self, artifact: str) -> bytes:
        """Return the graph converted in float32."""
        return convert_graph(self._graph(artifact))


def _unused_settings(data: DataSource) -> list[Problem]:
    """Return problems with settings of the data that a graph has no use for."""
    settings = {f"dataset.{name}": getattr(data.settings, name) for name in _UNUSED}
    unused = {place: str(value) for place, value in settings.items() if value is not None}
    unused |= _generated(data)
    if data.unlabelled and data.train:
        unused["dataset.unlabelled"] = data.unlabelled
    expected = "nothing of the kind for a model without Keras structure, which is neither changed nor trained"
    return [Problem(place, value, expected, "leave it out, or give data") for place, value in unused.items()]


def _generated(data: DataSource) -> dict[str, str]:
    """Return the parts of the data that are to be generated."""
    parts = {f"dataset.{part}": getattr(data, part) for part in ("train", "test")}
    return {place: name for place, name in parts.items() if name and generated_count(name)}

"""The stages of a collective batch before it has a plan: resolved, then inspected."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from mistify.config.reading import CollectiveBatch, profiles_of
from mistify.costs.budget import conditions_of
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import MeasuredProfile, Profile, by_name
from mistify.parsing.quantities import parse_duration
from mistify_server.planning.precision import choose_precision
from mistify_server.tasks.recipe import SOURCE, Recipe, derived_seed
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask, Measure

#: The setting of algorithms for the time in which all goals should be done.
_TIME: Final = "time"


@dataclass(frozen=True)
class ResolvedBatch:
    """A collective batch with the locations of its model and data.

    Attributes:
        number: Index of the batch in its job.
        devices: The measured devices that the goals name.
        precision_choices: Goal id -> the reason for the precision that the server chose.
    """

    number: int
    batch: CollectiveBatch
    model: ModelSource
    data: DataSource
    devices: tuple[MeasuredProfile, ...] = ()
    precision_choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def hardware(self) -> dict[str, Profile]:
        """The profiles of this machine and of the goals' hardware, for the goals' thread counts."""
        configs = self.batch.configs
        here = (HOST.with_threads(config.threads) for config in configs)
        return by_name([HOST, *here, *profiles_of(configs), *self.devices])

    @property
    def recipe(self) -> Recipe:
        """The recipe of the batch's source."""
        algorithm = self.batch.algorithm
        return Recipe(
            model=self.model,
            data=self.data,
            algorithm=algorithm.name,
            settings=algorithm.config,
            hardware=self.hardware,
            seed=derived_seed(algorithm.config, SOURCE),
        )

    def with_precisions(self, inspection: Inspection) -> "ResolvedBatch":
        """Return the batch with a precision for each goal that leaves it to the server."""
        chosen = [choose_precision(config, inspection) for config in self.batch.configs]
        choices = {config.id: reason for config, reason in chosen if reason}
        configs = tuple(config for config, _ in chosen)
        return replace(self, batch=replace(self.batch, configs=configs), precision_choices=choices)

    def as_inspected(self, inspection: Inspection) -> "ResolvedBatch":
        """Return the batch with the metrics that an inspection chose for its data, and with their layout."""
        chosen = {"metric": inspection.metric, "metrics": inspection.metrics}
        settings = self.data.settings.model_copy(update=chosen)
        changes = {"settings": settings, "channels_first": inspection.channels_first}
        return replace(self, data=self.data.model_copy(update=changes))

    @property
    def seconds(self) -> float | None:
        """The time in which the goals should be done; None if their settings name none."""
        time = self.batch.algorithm.config.get(_TIME)
        return None if time is None else parse_duration(time)

    @property
    def limits_host(self) -> bool:
        """True if a goal limits the latency on this machine, so that the machine must be profiled."""
        axes = set().union(*(config.limits() for config in self.batch.configs))
        return any(conditions_of(axis)[0] == HOST.name for axis in axes)

    @property
    def measures(self) -> frozenset[Measure]:
        """The measurements of the source that its goals need.

        If any goal has a target, the source's accuracy is measured as well, for the forecast. If the goals
        should be done in a certain time, everything is measured that a forecast needs.
        """
        needed: set[Measure] = set()
        if self.seconds is not None:
            needed |= {"accuracy", "step", "trial"}
        if any(config.adaptation_goal.accuracy is not None for config in self.batch.configs):
            needed.add("accuracy")
        if self.limits_host:
            needed.add("host")
        return frozenset(needed)

    @property
    def inspected_parts(self) -> tuple[object, ...]:
        """Everything on which `inspect_task` depends, which takes a third of the time of making the task."""
        return self.model, self.data, self.batch.algorithm, self.hardware, self.measures

    def inspect_task(self, measures: Collection[Measure] = ()) -> InspectTask:
        """Return the task that inspects the batch's model and data.

        The time that the settings name makes no difference to the inspection.

        Args:
            measures: Measurements beside those that the goals need.
        """
        needed = self.measures.union(measures)
        recipe = self.recipe
        settings = {name: value for name, value in recipe.settings.items() if name != _TIME}
        timeless = recipe.model_copy(update={"settings": settings})
        return InspectTask(recipe=timeless, measures=tuple(sorted(needed)))


class InspectedBatch(NamedTuple):
    """A batch and a worker's inspection of its model and data."""

    resolved: ResolvedBatch
    inspection: Inspection

    def with_precisions(self) -> "InspectedBatch":
        """Return the batch with a precision for each goal that leaves it to the server."""
        return self._replace(resolved=self.resolved.with_precisions(self.inspection))

"""A batch whose models, data and devices were looked up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from mistify.config.batch import CollectiveBatch, profiles_of
from mistify.config.metric import Metric
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import MeasuredProfile, Profile, by_name
from mistify_server.planning.precision import settled
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask, Measure


@dataclass(frozen=True)
class ResolvedBatch:
    """A collective batch whose model and data were found.

    `devices` are the measured ones that its goals name. `precision_choices` say of goals, by their ids, why
    the server chose their precision.
    """

    number: int
    batch: CollectiveBatch
    model: ModelSource
    data: DataSource
    devices: tuple[MeasuredProfile, ...] = ()
    precision_choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def hardware(self) -> dict[str, Profile]:
        """The profiles of this machine and of what the goals name."""
        return by_name([HOST, *profiles_of(self.batch.configs), *self.devices])

    def settled(self, inspection: Inspection) -> "ResolvedBatch":
        """The batch with a precision for each goal that leaves it to the server."""
        decided = [settled(config, inspection) for config in self.batch.configs]
        choices = {config.id: choice for config, choice in decided if choice}
        configs = tuple(config for config, _ in decided)
        return replace(self, batch=replace(self.batch, configs=configs), precision_choices=choices)

    def measured_by(self, metric: Metric | None) -> "ResolvedBatch":
        """The batch with the metric that was found to suit its data."""
        settings = self.data.settings.model_copy(update={"metric": metric})
        return replace(self, data=self.data.model_copy(update={"settings": settings}))

    def inspection(self, measures: Collection[Measure] = ()) -> InspectTask:
        """The task of looking at the batch's model and data, and measuring the source.

        Whoever asks for accuracy wants to know whether that is likely.
        """
        targets = any(config.adaptation_goal.accuracy is not None for config in self.batch.configs)
        return InspectTask(
            model=self.model,
            data=self.data,
            algorithm=self.batch.algorithm.name,
            algorithm_config=self.batch.algorithm.config,
            hardware=self.hardware,
            measures=tuple(sorted({*measures, "accuracy"} if targets else measures)),
        )

"""Goals that are added to a job: what they have to fit, and how the job's trees grow by them (paper 4.3)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mistify.config.batch import CollectiveBatch, collective_batches
from mistify.config.porting import PortingConfig
from mistify.costs.catalogue import HOST
from mistify.errors import Problem, invalid_config
from mistify.jobs.job import Goal, Job
from mistify.parsing.validation import InvalidValue
from mistify_server.devices.naming import find_devices
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.forecast.forecast import forecast_of, told
from mistify_server.planning.insertion import insert_goals, promises
from mistify_server.planning.limits import unreachable
from mistify_server.planning.tree import asked_goals
from mistify_server.store.devices import DeviceStore
from mistify_server.store.jobs import JobStore
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.results import Inspection

#: The number of a batch -> what a worker found out about hardware that is new in it.
Inspections: TypeAlias = Mapping[int, Inspection]

#: What the configs of a collective batch have in common: where it stands in a config, there and in a plan.
_COMMON: Mapping[str, tuple[Callable[[CollectiveBatch], object], Callable[[BatchPlan], object]]] = {
    "model": (lambda batch: batch.model, lambda plan: plan.model_name),
    "dataset": (
        lambda batch: batch.dataset.model_dump(mode="json", exclude_defaults=True),
        lambda plan: plan.dataset.model_dump(mode="json", exclude_defaults=True),
    ),
    "algorithm": (
        lambda batch: batch.algorithm.model_dump(),
        lambda plan: {"name": plan.algorithm, "config": plan.algorithm_config},
    ),
}


@dataclass(frozen=True)
class JobSnapshot:
    """A job as it stands: its goals, its batches, what has been made of them; and the known devices."""

    job: Job
    states: Sequence[BatchState]
    devices: DeviceStore

    def fitting(self, configs: Sequence[PortingConfig]) -> list[ResolvedBatch]:
        """The configs by the batch of the job that they belong to: that of their model, data and algorithm.

        The batch keeps the model and the data that these names meant when the job was submitted.

        Raises:
            MistifyError: INVALID_CONFIG with every config of no batch, id that the job has already, hardware
                profile with other figures than in the job, and name of hardware that nobody knows.
        """
        problems = [*self._known_ids(configs), *self._other_hardware(configs)]
        found = []
        for batch in collective_batches(configs):
            plan = self._plan_of(batch, problems)
            if plan is not None:
                devices = find_devices(batch, self.devices, problems, known=plan.hardware)
                found.append(ResolvedBatch(plan.number, batch, plan.model, plan.data, devices))
        if problems:
            raise invalid_config(problems)
        return found

    def unmeasured(self, batches: Sequence[ResolvedBatch]) -> list[ResolvedBatch]:
        """Those of the batches with limits on axes, such as of new hardware, that nothing is known of yet."""
        return [
            batch
            for batch in batches
            if batch.hardware.keys() - self._plan(batch).hardware.keys()
            or any(
                config.limits().keys() - self._plan(batch).source_costs.keys()
                for config in batch.batch.configs
            )
        ]

    def grown(
        self, batches: Sequence[ResolvedBatch], findings: Inspections, history: JobStore
    ) -> tuple[list[BatchPlan], list[Goal]]:
        """The plans that have grown by some configs, and the new goals in the order of the configs.

        Args:
            batches: `fitting` this job.
            findings: of those that are `unmeasured`.
            history: of all jobs.

        Raises:
            MistifyError: INVALID_CONFIG with every limit below the least that a network can become.
        """
        measured = [_measured(self._plan(batch), batch, findings) for batch in batches]
        batches = [batch.settled(_inspected(plan)) for batch, plan in zip(batches, measured, strict=True)]
        problems = [
            problem
            for batch, plan in zip(batches, measured, strict=True)
            for problem in unreachable(batch.batch, _inspected(plan))
        ]
        if problems:
            raise invalid_config(problems)
        plans: list[BatchPlan] = []
        placed: dict[int, Goal] = {}
        for batch, plan in zip(batches, measured, strict=True):
            promised = promises(self._state(batch), self.job.goals)
            grown, goals = insert_goals(plan, promised, asked_goals(batch, plan.source_costs))
            forecast = forecast_of(grown, history, {node.algorithm for node in plan.nodes})
            if forecast is not None:
                grown, goals = forecast.plan, told(goals, forecast)
            plans.append(grown)
            placed |= dict(zip(batch.batch.indices, goals, strict=True))
        return plans, [placed[index] for index in sorted(placed)]

    def _state(self, batch: ResolvedBatch) -> BatchState:
        return next(state for state in self.states if state.plan.number == batch.number)

    def _plan(self, batch: ResolvedBatch) -> BatchPlan:
        return self._state(batch).plan

    def _plan_of(self, batch: CollectiveBatch, problems: list[Problem]) -> BatchPlan | None:
        plans = [state.plan for state in self.states]
        for part, (given, known) in _COMMON.items():
            fitting = [plan for plan in plans if _text(known(plan)) == _text(given(batch))]
            if not fitting:
                of_job = " or ".join(dict.fromkeys(_text(known(plan)) for plan in plans))
                wrong = InvalidValue(
                    given(batch), f"{of_job}, as in the job", "start a job of its own for it"
                )
                problems.append(wrong.problem(f"[{batch.indices[0]}].{part}"))
                return None
            plans = fitting
        return plans[0]

    def _known_ids(self, configs: Sequence[PortingConfig]) -> Iterator[Problem]:
        known = {goal.id.casefold() for goal in self.job.goals}
        for index, config in enumerate(configs):
            if config.id.casefold() in known:
                expected = (
                    f"an id unlike those of the goals of the job {self.job.id}, also without regard to case"
                )
                yield InvalidValue(config.id, expected, "rename it").problem(f"[{index}].id")

    def _other_hardware(self, configs: Sequence[PortingConfig]) -> Iterator[Problem]:
        known = {name: profile for state in self.states for name, profile in state.plan.hardware.items()}
        for index, config in enumerate(configs):
            profile = config.profile
            # The host's figures are calibrated, and so never those of a config.
            if (
                profile is not None
                and profile.name != HOST.name
                and known.get(profile.name, profile) != profile
            ):
                expected = f"{known[profile.name]}, as in the job"
                yield InvalidValue(str(profile), expected, "give it another name").problem(
                    f"[{index}].hardware"
                )


def _measured(plan: BatchPlan, batch: ResolvedBatch, findings: Inspections) -> BatchPlan:
    """A plan with what was found out about new hardware; what it knows already stays."""
    if plan.number not in findings:
        return plan
    found = findings[plan.number]
    return plan.model_copy(
        update={
            "hardware": {**batch.hardware, **found.hardware, **plan.hardware},
            "source_costs": {**found.costs, **plan.source_costs},
            "floor": {**found.floor, **plan.floor},
            "estimates": _scaled_on_more(plan.estimates, found.estimates),
        }
    )


def _scaled_on_more(known: EdgeEstimates | None, found: EdgeEstimates | None) -> EdgeEstimates | None:
    """EdgeEstimates with the costs on new hardware."""
    if known is None or found is None:
        return known
    scaled = ({**new, **old} for new, old in zip(found.scaled, known.scaled, strict=True))
    return known.model_copy(update={"scaled": tuple(scaled)})


def _inspected(plan: BatchPlan) -> Inspection:
    """What was found out about the batch's source."""
    return Inspection(costs=plan.source_costs, floor=plan.floor, inputs=plan.inputs, adaptable=plan.adaptable)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)

"""A snapshot of a running or finished job, and the insertion of added goals into its trees."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import TypeAlias

from mistify.config.porting import PortingConfig
from mistify.config.reading import CollectiveBatch, collective_batches
from mistify.costs.budget import latency_axis, threads_of
from mistify.costs.catalogue import host_profile_name, is_host
from mistify.costs.profiles import Profile
from mistify.costs.quantization import Quantization
from mistify.errors import Problem, invalid_config
from mistify.jobs.job import Goal, Job
from mistify.parsing.validation import InvalidValue
from mistify_server.planning.batch import InspectedBatch, ResolvedBatch
from mistify_server.planning.batch_plan import asked_goals
from mistify_server.planning.forecast.basis import ForecastBases
from mistify_server.planning.forecast.forecast import forecast_of
from mistify_server.planning.forecast.work import with_expected_work
from mistify_server.planning.insertion import insert_goals, node_offers
from mistify_server.planning.limits import unreachable
from mistify_server.planning.lookup.hardware import find_devices
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.planning.lookup.tasks import with_tasks
from mistify_server.planning.rejection import reject
from mistify_server.store.jobs import JobStore
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import Inspection

#: Index of a batch -> its inspection.
Inspections: TypeAlias = Mapping[int, Inspection]

#: Parts of a config that a collective batch shares -> getters of their values from a batch and from a plan.
_COMMON: Mapping[str, tuple[Callable[[CollectiveBatch], object], Callable[[BatchPlan], object]]] = {
    "model": (lambda batch: batch.model, lambda plan: plan.model_name),
    "dataset": (
        lambda batch: batch.dataset.model_dump(mode="json", exclude_defaults=True),
        lambda plan: plan.dataset.model_dump(mode="json", exclude_defaults=True),
    ),
    "algorithm": (
        lambda batch: batch.algorithm.model_dump(),
        lambda plan: {"name": plan.recipe.algorithm, "config": plan.recipe.settings},
    ),
}


def common_of(plan: BatchPlan) -> dict[str, object]:
    """Return the parts of a config that all goals of a batch share: model, data and algorithm."""
    return {part: of_plan(plan) for part, (_, of_plan) in _COMMON.items()}


@dataclass(frozen=True)
class JobSnapshot:
    """A job as stored at one point in time (paper 4.3, streaming).

    Attributes:
        states: The job's batches with their existing checkpoints.
        resolver: Finds the files of names, and the devices that the server has measured.
    """

    job: Job
    states: Sequence[BatchState]
    resolver: BatchResolver

    @property
    def common(self) -> dict[str, object]:
        """The model, data and algorithm, as far as all batches share them."""
        values = {
            part: [of_plan(state.plan) for state in self.states] for part, (_, of_plan) in _COMMON.items()
        }
        return {part: every[0] for part, every in values.items() if all(each == every[0] for each in every)}

    def resolve(self, configs: Sequence[PortingConfig]) -> list[ResolvedBatch]:
        """Group new configs by the job's batch with the same model, data and algorithm.

        The batch keeps the model and data that its names referred to when the job was submitted. Other names
        of the same files match as well.

        Raises:
            MistifyError: INVALID_CONFIG with every config that matches no batch, every id already in the job,
                every hardware profile that differs from the job's, and every unknown hardware name.
        """
        collector = ProblemCollector()
        problems = collector.problems
        collector.add([*self._repeated_ids(configs), *self._changed_hardware(configs)])
        resolved = []
        for batch in collective_batches(configs):
            plan = self._find_plan(batch, problems)
            if plan is not None:
                recipe = plan.recipe
                devices = find_devices(batch, self.resolver.devices, problems, known=recipe.hardware)
                with_known_tasks = with_tasks(batch, recipe.data.settings.tasks, collector)
                resolved.append(
                    ResolvedBatch(plan.number, with_known_tasks, recipe.model, recipe.data, devices)
                )
        if problems:
            raise invalid_config(problems)
        return resolved

    def uninspected(self, batches: Sequence[ResolvedBatch]) -> list[ResolvedBatch]:
        """Return the batches with hardware or limited axes that the job's inspections do not cover."""
        return [batch for batch in batches if not _covered(batch, self._plan(batch))]

    def insert(
        self, batches: Sequence[ResolvedBatch], inspections: Inspections, history: JobStore
    ) -> tuple[list[BatchPlan], list[Goal]]:
        """Insert the goals of new configs into the job's trees.

        Args:
            batches: Batches resolved by this snapshot.
            inspections: Inspections of the `uninspected` batches.
            history: The store of all jobs, from which the forecast learns.

        Returns:
            The plans with the goals, and the goals in the order of the configs.

        Raises:
            MistifyError: INVALID_CONFIG with every limit below the minimum costs of a network.
        """
        plans = [_with_inspection(self._plan(batch), batch, inspections) for batch in batches]
        inspected = [
            InspectedBatch(batch, _inspection_of(plan)).with_precisions()
            for batch, plan in zip(batches, plans, strict=True)
        ]
        reject(list(chain.from_iterable(starmap(unreachable, inspected))))
        grown_plans: list[BatchPlan] = []
        goals: dict[int, Goal] = {}
        for (batch, _), plan in zip(inspected, plans, strict=True):
            grown, inserted = self._insert(batch, plan, history)
            grown_plans.append(grown)
            goals |= dict(zip(batch.batch.indices, inserted, strict=True))
        return grown_plans, [goals[index] for index in sorted(goals)]

    def _insert(
        self, batch: ResolvedBatch, plan: BatchPlan, history: JobStore
    ) -> tuple[BatchPlan, list[Goal]]:
        """Insert goals into one tree, with algorithms and warnings."""
        offers = node_offers(self._state(batch), self.job.goals)
        asked = asked_goals(batch, plan.source_costs, plan.classes)
        grown, goals = insert_goals(plan, offers, asked)
        forecast = forecast_of(grown, ForecastBases(history), {node.algorithm for node in plan.nodes})
        return with_expected_work(grown, goals, forecast)

    def _state(self, batch: ResolvedBatch) -> BatchState:
        return next(state for state in self.states if state.plan.number == batch.number)

    def _plan(self, batch: ResolvedBatch) -> BatchPlan:
        return self._state(batch).plan

    def _find_plan(self, batch: CollectiveBatch, problems: list[Problem]) -> BatchPlan | None:
        """Return the plan of a batch; if there is none, report the first missing part and return None."""
        plans = [state.plan for state in self.states]
        for part, (of_batch, of_plan) in _COMMON.items():
            matches = [plan for plan in plans if _json(of_plan(plan)) == _json(of_batch(batch))] or [
                plan for plan in plans if self._names_same_files(part, batch, plan)
            ]
            if not matches:
                in_job = " or ".join(dict.fromkeys(_json(of_plan(plan)) for plan in plans))
                invalid = InvalidValue(
                    of_batch(batch), f"{in_job}, as in the job", "submit it as a separate job"
                )
                problems.append(invalid.problem(f"[{batch.indices[0]}].{part}"))
                return None
            plans = matches
        return plans[0]

    def _names_same_files(self, part: str, batch: CollectiveBatch, plan: BatchPlan) -> bool:
        """Return whether a part of a config names files of a plan in another way, such as by their paths."""
        if part == "model":
            return self.resolver.is_same_model(batch.model, plan.model_name)
        return part == "dataset" and self.resolver.is_same_dataset(batch.dataset, plan.dataset)

    def _repeated_ids(self, configs: Sequence[PortingConfig]) -> Iterator[Problem]:
        known = {goal.id.casefold() for goal in self.job.goals}
        for index, config in enumerate(configs):
            if config.id.casefold() in known:
                expected = f"an id that no goal of the job {self.job.id} has, ignoring case"
                yield InvalidValue(config.id, expected, "rename it").problem(f"[{index}].id")

    def _changed_hardware(self, configs: Sequence[PortingConfig]) -> Iterator[Problem]:
        known: dict[str, Profile] = {}
        for state in self.states:
            known |= state.plan.recipe.hardware
        for index, config in enumerate(configs):
            profile = config.profile
            # The host's figures are calibrated, so they never equal those in a config.
            if profile is None or is_host(profile.name) or known.get(profile.name, profile) == profile:
                continue
            expected = f"{known[profile.name]}, as in the job"
            invalid = InvalidValue(str(profile), expected, "give it another name")
            yield invalid.problem(f"[{index}].hardware")


def _covered(batch: ResolvedBatch, plan: BatchPlan) -> bool:
    """Return whether the plan has all hardware of a batch and the source's costs on all limited axes."""
    limits = [config.limits() for config in batch.batch.configs]
    axes = set().union(*limits)
    if batch.limits_host:
        axes |= {
            latency_axis(host_profile_name(Quantization.INT8, threads_of(of_goal))) for of_goal in limits
        }
    return batch.hardware.keys() <= plan.recipe.hardware.keys() and axes <= plan.source_costs.keys()


def _with_inspection(plan: BatchPlan, batch: ResolvedBatch, inspections: Inspections) -> BatchPlan:
    """Return a plan with the costs on new hardware added; existing costs stay unchanged."""
    inspection = inspections.get(plan.number)
    if inspection is None:
        return plan
    hardware = {**batch.hardware, **inspection.hardware, **plan.recipe.hardware}
    return plan.model_copy(
        update={
            "recipe": plan.recipe.model_copy(update={"hardware": hardware}),
            "source_costs": {**inspection.costs, **plan.source_costs},
            "floor": {**inspection.floor, **plan.floor},
            "estimates": _with_costs(plan.estimates, inspection.estimates),
        }
    )


def _with_costs(known: EdgeEstimates | None, new: EdgeEstimates | None) -> EdgeEstimates | None:
    """Return the estimates with the costs on new hardware added."""
    if known is None or new is None:
        return known
    scaled = ({**added, **costs} for added, costs in zip(new.scaled, known.scaled, strict=True))
    return known.model_copy(update={"scaled": tuple(scaled)})


def _inspection_of(plan: BatchPlan) -> Inspection:
    """Return the parts of the source's inspection that are kept in the plan."""
    return Inspection(
        costs=plan.source_costs,
        floor=plan.floor,
        inputs=plan.inputs,
        classes=plan.classes,
        adaptable=plan.adaptable,
        estimates=plan.estimates,
        metric=plan.recipe.data.metric,
        metrics=plan.recipe.data.settings.metrics,
    )


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)

"""A store with everything that the pages show, as if jobs, tokens and devices had made it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.metric import Metric
from mistify.costs.devices import Device, DeviceTable, Setting
from mistify.fleet import DeviceAdaptation, DevicePool, DeviceReport, DeviceStatus, DeviceSubnet, LastSwitch
from mistify.jobs.details import LayerChange, LayerFigures, LayerTable
from mistify.jobs.job import Goal, GoalState, Job, JobState, ProgressUpdate, Source
from mistify.rollouts import (
    DeviceInstallation,
    DeviceRollouts,
    InstallationPhase,
    Rollout,
    RolloutCriteria,
    RolloutState,
)
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.store.changes import (
    Advanced,
    Change,
    GoalChanged,
    GraphSaved,
    JobChanged,
    LayersSaved,
    ReferenceSaved,
    RootSaved,
    Submission,
)
from mistify_server.store.directory import Store
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.results import ReferenceResult, SourceResult
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tuning.groups import add_group
from tests.support.many_goals import job_of
from tests.support.network_graphs import network_graph

_DATA: Final = DatasetConfig(train="builtin:digits-train", test="builtin:digits-test")
_SEEN: Final = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)


def fill(store: Store) -> None:
    """Fill a store with jobs of 1 to 1,000 goals and of two models, a running one, tokens and a fleet."""
    one, twenty = job_of(1), job_of(20, ("class", "box"))
    put_job(store, replace(one, id="one", name="A single goal"))
    put_job(store, replace(twenty, id="twenty", name="Twenty classifiers", tags=("team=vision", "nightly")))
    put_job(store, replace(job_of(1_000), id="thousand"))
    put_job(store, two_models())
    put_job(store, replace(failed(twenty), id="failed"))
    put_job(store, running())
    put_job(store, replace(one, id="gone"))
    store.jobs.hide("gone", int(_SEEN.timestamp() * 1000))
    create_token(store.tokens, "ci", [Scope.READ, Scope.SUBMIT], 365)
    create_token(store.tokens, "phone-of-the-lab-on-the-third-floor", [Scope.READ, Scope.REPORT])
    store.fleet.put([DeviceReport(status, _SEEN) for status in _statuses(twenty)])
    for rollout in _rollouts(replace(twenty, id="twenty")):
        store.rollouts.put(rollout, store.rollouts.all())
    setting = Setting(False, 1, 0.031, 0.094)
    device = Device("my-board", "Cortex-A72", "LiteRT 2.2", (setting, replace(setting, integer=True)), _SEEN)
    store.devices.put(device, DeviceTable("my-board", "Cortex-A72", "LiteRT 2.2", (), ()), [])
    scales = '{"location_km": 1, "time_hours": 24}'
    add_group(
        store.tuning, "home", job_id="twenty", batch=0, correlation="spatiotemporal", settings_text=scales
    )


def two_models() -> Job:
    """Return a job with goals of two models."""
    first, second = job_of(4), job_of(3)
    (source,) = second.sources
    others = (replace(goal, id=f"speech-{goal.id}", batch=1, metric=Metric.F1) for goal in second.goals)
    speech = replace(source, batch=1, model="keyword-spotter", metric=Metric.F1)
    return replace(first, id="two-models", goals=(*first.goals, *others), sources=(*first.sources, speech))


def failed(job: Job) -> Job:
    """Return a job whose second goal failed, and whose third one has a long reason."""
    goals = list(job.goals)
    reason = "the worker was killed by signal SIGKILL 3 times; the machine may have too little memory for it"
    goals[1] = replace(
        goals[1], state=GoalState.FAILED, reason=reason, files=(), accuracy=None, achieved={}, measured={}
    )
    return replace(job, goals=tuple(goals))


def running() -> Job:
    """Return a job whose goals are met, in progress, and waiting."""
    job = job_of(6)
    states = (GoalState.MET, GoalState.MET, GoalState.RUNNING, *[GoalState.WAITING] * 3)
    goals = [
        goal if state.ended else Goal(goal.id, 0, goal.spec, algorithm=goal.algorithm, state=state)
        for goal, state in zip(job.goals, states, strict=True)
    ]
    return replace(job, id="running", goals=tuple(goals), state=JobState.RUNNING)


def put_job(store: Store, job: Job) -> None:
    """Store a job with its sources, and with the layers and the training curve of its first goal."""
    plans = [
        _plan(source, [goal for goal in job.goals if goal.batch == source.batch]) for source in job.sources
    ]
    new = (replace(goal, state=GoalState.WAITING) for goal in job.goals)
    queued = replace(job, state=JobState.QUEUED, goals=tuple(new))
    store.jobs.create(Submission(queued, plans, '[{"id": "a"}]', None))
    changes: list[Change] = [JobChanged(JobState.RUNNING)]
    for source in job.sources:
        changes += [RootSaved(source.batch, _root(source)), ReferenceSaved(source.batch, _reference(source))]
    first = job.goals[0]
    changes += [Advanced(first.id, update) for update in _curve(first)]
    changes += [GoalChanged(goal) for goal in job.goals if goal.state is not GoalState.WAITING]
    changes += [LayersSaved(first.id, _layers()), GraphSaved(first.id, network_graph(12))]
    if job.state is JobState.RUNNING:
        going = next(goal for goal in job.goals if goal.state is GoalState.RUNNING)
        tuning = ProgressUpdate("tuning", 348, 700, job_share=0.42, seconds_left=190.0)
        changes.append(Advanced(going.id, tuning))
    else:
        changes.append(JobChanged(job.state))
    store.jobs.record(job.id, changes, job.seconds, job.spent)


def _plan(source: Source, goals: Sequence[Goal]) -> BatchPlan:
    node = NodePlan(
        index=0,
        parent=None,
        budget=dict(goals[0].spec.budget),
        targets=(),
        seed=1,
        goals=tuple(goal.id for goal in goals),
    )
    return BatchPlan(
        number=source.batch,
        model_name=source.model,
        dataset=_DATA,
        recipe=Recipe(
            model=ModelSource(builtin="digits-resnet"),
            data=DataSource(train="builtin:digits-train", test="builtin:digits-test"),
            algorithm="auto",
            settings={},
            hardware={},
            seed=0,
        ),
        source_costs=dict(source.costs),
        floor={},
        exceed={},
        nodes=(node,),
    )


def _root(source: Source) -> SourceResult:
    return SourceResult(
        source_costs=dict(source.costs),
        source_accuracy=0.9,
        metric=source.metric,
        teacher="t",
        teacher_accuracy=0.95,
        root="t",
        root_costs=dict(source.costs),
        steps=200,
    )


def _reference(source: Source) -> ReferenceResult:
    return ReferenceResult(
        accuracy=source.accuracy or 0.0,
        tuned_accuracy=source.tuned_accuracy or 0.0,
        output_scores=source.output_scores,
        tuned_output_scores=source.tuned_output_scores,
        measured=dict(source.measured),
    )


def _curve(goal: Goal) -> list[ProgressUpdate]:
    """Return the training of a goal, first beyond its limits."""
    adapting = [
        ProgressUpdate(
            "adapting",
            step,
            500,
            loss=1 - step / 600,
            relative_costs=dict.fromkeys(goal.spec.budget, 2 - step / 100),
        )
        for step in range(0, 101, 10)
    ]
    tuning = [
        ProgressUpdate(
            "tuning", step, 500, loss=1 - step / 600, accuracy=0.6 + step / 2_000 if step % 100 == 0 else None
        )
        for step in range(100, 501, 50)
    ]
    return [*adapting, *tuning]


def _layers() -> LayerTable:
    before, after = LayerFigures(64, 36_928, 2_000_000, 0.4), LayerFigures(24, 5_208, 300_000, 0.1)
    return LayerTable(
        "pixel-8",
        (
            LayerChange("stem", "Conv2D", ("stem",), before, after),
            LayerChange(
                "block_1_expansion_with_a_long_name", "DepthwiseConv2D", ("stem", "block_2"), before, after
            ),
            LayerChange("block_2", "Conv2D", (), before, None),
            LayerChange("head", "Dense", (), before, before),
        ),
    )


def _statuses(job: Job) -> list[DeviceStatus]:
    """Return the state of a device that meets its targets, and of one that does not and has problems."""
    first, second = job.goals[:2]
    fine = DeviceStatus(
        "kitchen", "twenty", first.id, "branch-0", 3, 4.2, 3.9, False, True,
        "the most accurate option that fits", {"latency": "5 ms"},
        adaptation=DeviceAdaptation(None, 0.4, 1_200),
        rollouts=DeviceRollouts(
            "kitchen", 4.2, DeviceInstallation("running", InstallationPhase.INSTALLED, "", 4.0, 0.98)
        ),
    )  # fmt: skip
    pool = DevicePool(Metric.ACCURACY, 40, 8.0, (DeviceSubnet(5.1, 0.9), DeviceSubnet(3.3, 0.85)))
    busy = DeviceStatus(
        "a-phone-with-quite-a-long-name-in-the-hall", "twenty", second.id, "subnet-1", 5, 9.7, 6.0,
        True, False,
        "no option is fast enough: the fastest one takes 9.7 ms", {"latency": "8 ms", "accuracy": "90%"},
        {"energy": "the battery's current cannot be read: permission denied"},
        LastSwitch(int(_SEEN.timestamp() * 1000), "subnet-0", "latency rose from 5.1 ms to 9.7 ms"), pool,
        rollouts=DeviceRollouts(
            "kitchen", None,
            DeviceInstallation("running", InstallationPhase.FAILED, "there is no room for the package"),
        ),
    )  # fmt: skip
    return [fine, busy]


def _rollouts(job: Job) -> list[Rollout]:
    """Return a roll-out that has stopped, and one that is running."""
    now_ms = int(_SEEN.timestamp() * 1000)
    reason = "the latency is 1.53 times that before, with a limit of 1.2: kitchen (1.61x) and hall (1.45x)"
    stopped = Rollout(
        "stopped", job.id, job.goals[0].id, "0" * 64, "kitchen", "*", (0.01, 0.1, 1.0), RolloutCriteria(),
        RolloutState.STOPPED, 1, now_ms, reason, now_ms, "ci",
    )  # fmt: skip
    running = replace(
        stopped, id="running", criteria=RolloutCriteria(errors=0.5), state=RolloutState.RUNNING,
        reason="the stage of 1% has passed: 1 device reported, errors 0%",
    )  # fmt: skip
    return [stopped, running]

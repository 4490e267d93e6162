from functools import reduce
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.config.package.branches import BranchesConfig
from mistify.config.package.compression import CompressionConfig
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import (
    Goal,
    Job,
    JobEvent,
    JobState,
)
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import (
    Plan,
)
from mistify.quotas import CallerStatus
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from mistify.wire.errors import attached_error, error_metadata
from tests.support.job_values import details, events, jobs, plans, problems, statuses, texts


@given(jobs)
def test_a_job_survives_the_wire(job: Job) -> None:
    wire = porting.job_to_proto(job).SerializeToString()
    assert porting.job_from_proto(pb.Job.FromString(wire)) == job


@settings(deadline=None)
@given(plans)
def test_a_plan_survives_the_wire(plan: Plan) -> None:
    wire = porting.plan_to_proto(plan).SerializeToString()
    assert porting.plan_from_proto(pb.PortingPlan.FromString(wire)) == plan


@given(events)
def test_an_event_survives_the_wire(event: JobEvent) -> None:
    wire = porting.event_to_proto(event).SerializeToString()
    assert porting.event_from_proto(pb.JobEvent.FromString(wire)) == event


@given(st.lists(events, min_size=1, max_size=4))
def test_events_survive_the_wire_together(group: list[JobEvent]) -> None:
    wire = porting.events_to_proto(group).SerializeToString()
    assert porting.events_from_proto(pb.JobEvent.FromString(wire)) == group


@given(details)
def test_the_details_of_a_goal_survive_the_wire(details: GoalDetails) -> None:
    wire = porting.details_to_proto(details).SerializeToString()
    assert porting.details_from_proto(pb.GoalDetails.FromString(wire)) == details


@given(statuses)
def test_the_status_of_a_caller_survives_the_wire(status: CallerStatus) -> None:
    wire = porting.status_to_proto(status).SerializeToString()
    assert porting.status_from_proto(pb.Caller.FromString(wire)) == status


@given(st.sampled_from(ErrorCode), texts, st.lists(problems, max_size=3).map(tuple))
def test_an_error_survives_the_wire(code: ErrorCode, message: str, problems: tuple[Problem, ...]) -> None:
    wire = porting.error_to_proto(MistifyError(code, message, problems)).SerializeToString()
    back = porting.error_from_proto(pb.ErrorInfo.FromString(wire))
    assert (back.code, back.message, back.problems) == (code, message, problems)


def test_an_unknown_code_is_internal() -> None:
    assert (
        porting.error_from_proto(pb.ErrorInfo(code="FROM_THE_FUTURE", message="m")).code is ErrorCode.INTERNAL
    )


def test_metadata_that_cannot_be_read_are_no_error() -> None:
    error = MistifyError(ErrorCode.CONFLICT, "m")
    ((key, content),) = error_metadata(error)
    read = attached_error([SimpleNamespace(key=key, value=content)])
    assert read is not None
    assert read.code is ErrorCode.CONFLICT
    assert attached_error([SimpleNamespace(key=key, value=content[:-1])]) is None


@pytest.mark.parametrize(
    "message",
    [
        pb.JobEvent(sequence=3),
        pb.JobEvent(sequence=3, job_state=99),  # type: ignore[arg-type]
        pb.JobEvent(sequence=3, goal_state=pb.GOAL_STATE_UNSPECIFIED),
    ],
)
def test_an_event_of_an_unknown_kind_is_an_error(message: pb.JobEvent) -> None:
    with pytest.raises(MistifyError, match="same version"):
        porting.event_from_proto(message)


GOAL = Goal("a", 0, PackageSpec({}, branches=BranchesConfig(), compression=CompressionConfig(clusters=4)))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("state", 99, "goal state 99"),
        ("metric", "no word", 'metric "no word"'),
        ("spec.quantization.precision", "int2", 'quantization "int2"'),
        ("spec.quantization.inputs", "int2", "quantization config"),
        ("spec.branches.count", 99, "branches config"),
        ("spec.compression.clusters", 999, "compression config"),
        ("spec.compression.sparsity", 0.5, "compression config"),
        ("spec.tuning.trainable", "middle", "tuning config"),
        ("spec.tuning.optimizer", "lion", "tuning config"),
    ],
)
def test_a_value_from_a_newer_version_is_an_error_that_names_it(
    field: str, value: object, named: str
) -> None:
    message = porting.job_to_proto(Job("job-1", JobState.DONE, (GOAL,), 0))
    *parents, name = field.split(".")
    setattr(reduce(getattr, parents, message.goals[0]), name, value)
    with pytest.raises(MistifyError, match=f"{named}.*same version") as caught:
        porting.job_from_proto(message)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize("written", [[], ["kJ"]])
def test_a_format_that_uses_undefined_units_is_an_error(written: list[str]) -> None:
    axis_format = pb.AxisFormat(quantity="energy_mj", label="energy", units={"mJ": 1.0}, written=written)
    with pytest.raises(MistifyError, match=r"axis format.*same version"):
        porting.plan_from_proto(
            pb.PortingPlan(batches=[pb.PlannedBatch(metric="accuracy", formats=[axis_format])])
        )

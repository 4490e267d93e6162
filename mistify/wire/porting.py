"""Conversion of jobs, plans and errors to protobuf and back: `x_from_proto(x_to_proto(x)) == x`."""

from collections.abc import Sequence

from mistify.config.package.tuning import Part
from mistify.costs.formats import AxisFormat
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import GoalState, Job, JobEvent, JobPriority, JobState, ProgressUpdate
from mistify.jobs.part import GoalSelection, JobPage, JobPart, UnreadableJob
from mistify.jobs.plan import Plan
from mistify.package.signature import KeyChain
from mistify.parsing.quantities import QuantityKind, sized
from mistify.quotas import CallerStatus
from mistify.v1 import porting_pb2 as pb
from mistify.wire.messages import Codec, Converter, enum_codec, unknown


def job_to_proto(job: Job) -> pb.Job:
    """Return a job with its goals as a message."""
    return _CONVERTER.to_message(job, pb.Job)


def job_from_proto(message: pb.Job) -> Job:
    """Return the job in a message, with its goals.

    Raises:
        MistifyError: INVALID_MESSAGE, it contains something unknown to this version. The same holds below.
    """
    return _CONVERTER.from_message(message, Job)


def part_to_proto(part: JobPart) -> pb.Job:
    """Return a job with some of its goals as a message."""
    message = job_to_proto(part.job)
    message.goal_count, message.goals_met = part.goal_count, part.goals_met
    message.next_page_token = part.next_page_token
    return message


def part_from_proto(message: pb.Job) -> JobPart:
    """Return the job in a message, with the goals that the message contains."""
    job = job_from_proto(message)
    return JobPart(job, message.goal_count, message.goals_met, message.next_page_token)


def page_to_proto(page: JobPage) -> pb.ListJobsResponse:
    """Return a page of jobs as a message."""
    unreadable = [pb.UnreadableJob(id=job.id, reason=job.reason) for job in page.unreadable]
    return pb.ListJobsResponse(
        jobs=map(part_to_proto, page.jobs), next_page_token=page.next_page_token, unreadable=unreadable
    )


def page_from_proto(message: pb.ListJobsResponse) -> JobPage:
    """Return the page of jobs in a message."""
    unreadable = [UnreadableJob(job.id, job.reason) for job in message.unreadable]
    return JobPage(list(map(part_from_proto, message.jobs)), message.next_page_token, unreadable)


def keys_to_proto(keys: KeyChain) -> pb.SigningKeys:
    """Return signing keys as a message."""
    return _CONVERTER.to_message(keys, pb.SigningKeys)


def keys_from_proto(message: pb.SigningKeys) -> KeyChain:
    """Return the signing keys in a message."""
    return _CONVERTER.from_message(message, KeyChain)


def status_to_proto(status: CallerStatus) -> pb.Caller:
    """Return the status of a caller as a message."""
    return _CONVERTER.to_message(status, pb.Caller)


def status_from_proto(message: pb.Caller) -> CallerStatus:
    """Return the status of a caller in a message."""
    return _CONVERTER.from_message(message, CallerStatus)


def selection_to_proto(selection: GoalSelection) -> pb.GoalSelection:
    """Return a selection of goals as a message."""
    return _CONVERTER.to_message(selection, pb.GoalSelection)


def selection_from_proto(message: pb.GoalSelection) -> GoalSelection:
    """Return the selection of goals in a message."""
    return _CONVERTER.from_message(message, GoalSelection)


def details_to_proto(details: GoalDetails) -> pb.GoalDetails:
    """Return the details of a goal as a message."""
    return _CONVERTER.to_message(details, pb.GoalDetails)


def details_from_proto(message: pb.GoalDetails) -> GoalDetails:
    """Return the details of a goal in a message."""
    return _CONVERTER.from_message(message, GoalDetails)


def plan_to_proto(plan: Plan) -> pb.PortingPlan:
    """Return a plan as a message."""
    return _CONVERTER.to_message(plan, pb.PortingPlan)


def plan_from_proto(message: pb.PortingPlan) -> Plan:
    """Return the plan in a message."""
    return _CONVERTER.from_message(message, Plan)


def priority_to_proto(priority: JobPriority) -> pb.JobPriority:
    """Return a priority as in messages."""
    number: pb.JobPriority = _PRIORITY.encode(priority)
    return number


def priority_from_proto(number: pb.JobPriority) -> JobPriority:
    """Return the priority in a message."""
    priority: JobPriority = _PRIORITY.decode(number)
    return priority


def event_to_proto(event: JobEvent) -> pb.JobEvent:
    """Return an event as a message; an empty goal id stands for the whole job."""
    message = pb.JobEvent(sequence=event.sequence, unix_ms=event.unix_ms, goal_id=event.goal_id or "")
    match event.event:
        case JobState():
            message.job_state = _JOB_STATE.encode(event.event)
        case GoalState():
            message.goal_state = _GOAL_STATE.encode(event.event)
        case ProgressUpdate():
            message.progress.CopyFrom(_CONVERTER.to_message(event.event, pb.Progress))
    return message


def events_to_proto(events: Sequence[JobEvent]) -> pb.JobEvent:
    """Return one or more events as one message."""
    message, *following = map(event_to_proto, events)
    message.following.extend(following)
    return message


def events_from_proto(message: pb.JobEvent) -> list[JobEvent]:
    """Return the events in a message, in order."""
    return [event_from_proto(each) for each in (message, *message.following)]


def event_from_proto(message: pb.JobEvent) -> JobEvent:
    """Return the event in a message."""
    event: JobState | GoalState | ProgressUpdate
    match message.WhichOneof("event"):
        case "job_state":
            event = _JOB_STATE.decode(message.job_state)
        case "goal_state":
            event = _GOAL_STATE.decode(message.goal_state)
        case "progress":
            event = _CONVERTER.from_message(message.progress, ProgressUpdate)
        case _:
            raise unknown(JobEvent, message.sequence)
    return JobEvent(message.sequence, message.unix_ms, message.goal_id or None, event)


def error_to_proto(error: MistifyError) -> pb.ErrorInfo:
    """Return an error with its problems as a message."""
    problems = [_CONVERTER.to_message(problem, pb.ErrorProblem) for problem in error.problems]
    return pb.ErrorInfo(code=error.code.name, message=error.message, problems=problems)


def error_from_proto(message: pb.ErrorInfo) -> MistifyError:
    """Return the error in a message; unknown codes become `INTERNAL`."""
    code = ErrorCode.__members__.get(message.code, ErrorCode.INTERNAL)
    problems = [_CONVERTER.from_message(problem, Problem) for problem in message.problems]
    return MistifyError(code, message.message, problems)


def _encoded_format(axis_format: AxisFormat) -> dict[str, object]:
    kind = axis_format.kind
    return {
        "quantity": axis_format.quantity,
        "label": axis_format.label,
        "units": {name: float(size) for name, size in kind.units.items() if name},
        "written": kind.written,
        "whole": kind.whole,
        "relative": kind.relative,
        "expected": kind.expected,
    }


def _decoded_format(message: pb.AxisFormat) -> AxisFormat:
    units, written = {"": 1.0, **message.units}, tuple(message.written)
    if not written or not set(written) <= units.keys():
        raise unknown(AxisFormat, f"in units {sorted(units)}, written in {list(written)}")
    kind = QuantityKind(message.expected, sized(units), written, message.relative, message.whole)
    return AxisFormat(message.quantity, message.label, kind)


_JOB_STATE = enum_codec(JobState, {state: pb.JobState.Value(f"JOB_STATE_{state.name}") for state in JobState})
_GOAL_STATE = enum_codec(
    GoalState, {state: pb.GoalState.Value(f"GOAL_STATE_{state.name}") for state in GoalState}
)
_PRIORITY = enum_codec(
    JobPriority, {each: pb.JobPriority.Value(f"JOB_PRIORITY_{each.name}") for each in JobPriority}
)

_CONVERTER = Converter(
    {
        JobState: _JOB_STATE,
        GoalState: _GOAL_STATE,
        JobPriority: _PRIORITY,
        AxisFormat: Codec(_encoded_format, _decoded_format),
        Part: Codec(str, lambda part: int(part) if part.isdecimal() else part),
    }
)

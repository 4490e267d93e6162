"""The only place where domain objects become protobuf and back: `x_from_proto(x_to_proto(x)) == x`."""

from collections.abc import Iterable

from pydantic import ValidationError

from mistify.config.branches import BranchesConfig
from mistify.config.compression import CompressionConfig
from mistify.config.metric import Metric
from mistify.config.quantization import QuantizationConfig
from mistify.config.tuning import TuningConfig
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.job import (
    BranchFigures,
    Goal,
    GoalState,
    Job,
    JobEvent,
    JobState,
    PackageFile,
    ProgressUpdate,
    Source,
)
from mistify.parsing.quantities import QuantityKind, sized
from mistify.v1 import porting_pb2 as pb


def job_to_proto(job: Job) -> pb.Job:
    """A job with its goals as a message."""
    return pb.Job(
        id=job.id,
        state=_JOB_STATES[job.state],
        seconds=job.seconds,
        spent=job.spent,
        source=None if job.source is None else _source_to_proto(job.source),
        goals=[goal_to_proto(goal) for goal in job.goals],
        reason=job.reason,
        created_unix_ms=job.created_unix_ms,
    )


def job_from_proto(message: pb.Job) -> Job:
    """A job with its goals from a message."""
    return Job(
        id=message.id,
        state=_job_state_from_proto(message.state),
        seconds=message.seconds,
        spent=dict(message.spent),
        source=_source_from_proto(message.source) if message.HasField("source") else None,
        goals=tuple(goal_from_proto(goal) for goal in message.goals),
        reason=message.reason,
        created_unix_ms=message.created_unix_ms,
    )


def goal_to_proto(goal: Goal) -> pb.Goal:
    """A goal as a message; no parent is the empty text there."""
    return pb.Goal(
        id=goal.id,
        batch=goal.batch,
        parent=goal.parent or "",
        state=_GOAL_STATES[goal.state],
        budget=goal.budget,
        accuracy_target=goal.accuracy_target,
        metric=goal.metric,
        quantization=_quantization_to_proto(goal.quantization),
        branches=None if goal.branches is None else _branches_to_proto(goal.branches),
        compression=None
        if goal.compression is None
        else pb.Compression(sparsity=goal.compression.sparsity, clusters=goal.compression.clusters),
        tuning=_tuning_to_proto(goal.tuning),
        algorithm=goal.algorithm,
        choice=goal.choice,
        warning=goal.warning,
        achieved=goal.achieved,
        measured=goal.measured,
        accuracy=goal.accuracy,
        reason=goal.reason,
        note=goal.note,
        seconds=goal.seconds,
        steps=goal.steps,
        files=[pb.PackageFile(name=file.name, size=file.size, sha256=file.sha256) for file in goal.files],
        branch_figures=[
            pb.BranchFigures(
                share=branch.share,
                achieved=branch.achieved,
                measured=branch.measured,
                accuracy=branch.accuracy,
            )
            for branch in goal.branch_figures
        ],
        precision_choice=goal.precision_choice,
    )


def goal_from_proto(message: pb.Goal) -> Goal:
    """A goal from a message."""
    return Goal(
        id=message.id,
        batch=message.batch,
        parent=message.parent or None,
        state=_goal_state_from_proto(message.state),
        budget=dict(message.budget),
        accuracy_target=message.accuracy_target if message.HasField("accuracy_target") else None,
        metric=metric_from_proto(message.metric),
        quantization=_quantization_from_proto(message.quantization),
        branches=_branches_from_proto(message.branches) if message.HasField("branches") else None,
        compression=_compression_from_proto(message.compression) if message.HasField("compression") else None,
        tuning=_tuning_from_proto(message.tuning),
        algorithm=message.algorithm,
        choice=message.choice,
        warning=message.warning,
        achieved=dict(message.achieved),
        measured=dict(message.measured),
        accuracy=message.accuracy if message.HasField("accuracy") else None,
        reason=message.reason,
        note=message.note,
        seconds=message.seconds,
        steps=message.steps,
        files=tuple(PackageFile(file.name, file.size, file.sha256) for file in message.files),
        branch_figures=tuple(
            BranchFigures(branch.share, dict(branch.achieved), dict(branch.measured), branch.accuracy)
            for branch in message.branch_figures
        ),
        precision_choice=message.precision_choice,
    )


def event_to_proto(event: JobEvent) -> pb.JobEvent:
    """An event as a message; an event of the whole job has the empty text as goal id there."""
    message = pb.JobEvent(sequence=event.sequence, unix_ms=event.unix_ms, goal_id=event.goal_id or "")
    match event.event:
        case JobState():
            message.job_state = _JOB_STATES[event.event]
        case GoalState():
            message.goal_state = _GOAL_STATES[event.event]
        case ProgressUpdate():
            message.progress.CopyFrom(_progress_to_proto(event.event))
    return message


def event_from_proto(message: pb.JobEvent) -> JobEvent:
    """An event from a message.

    Raises:
        MistifyError: the event is of a kind that this version does not know.
    """
    event: JobState | GoalState | ProgressUpdate
    match message.WhichOneof("event"):
        case "job_state":
            event = _job_state_from_proto(message.job_state)
        case "goal_state":
            event = _goal_state_from_proto(message.goal_state)
        case "progress":
            event = _progress_from_proto(message.progress)
        case _:
            raise _unknown("event", message.sequence)
    return JobEvent(message.sequence, message.unix_ms, message.goal_id or None, event)


def error_to_proto(error: MistifyError) -> pb.ErrorInfo:
    """An error with its problems as a message."""
    return pb.ErrorInfo(
        code=error.code.name,
        message=error.message,
        problems=[
            pb.ErrorProblem(
                place=problem.place, given=problem.given, expected=problem.expected, fix=problem.fix
            )
            for problem in error.problems
        ],
    )


def error_from_proto(message: pb.ErrorInfo) -> MistifyError:
    """An error from a message; a code that this version does not know becomes `INTERNAL`."""
    code = ErrorCode.__members__.get(message.code, ErrorCode.INTERNAL)
    problems = [Problem(p.place, p.given, p.expected, p.fix) for p in message.problems]
    return MistifyError(code, message.message, problems)


def formats_to_proto(formats: Iterable[AxisFormat]) -> list[pb.AxisFormat]:
    """Formats as messages."""
    return [
        pb.AxisFormat(
            quantity=axis_format.quantity,
            label=axis_format.label,
            units={name: float(size) for name, size in axis_format.kind.units.items() if name},
            written=axis_format.kind.written,
            whole=axis_format.kind.whole,
            relative=axis_format.kind.relative,
            expected=axis_format.kind.expected,
        )
        for axis_format in formats
    ]


def formats_from_proto(messages: Iterable[pb.AxisFormat]) -> tuple[AxisFormat, ...]:
    """Formats from messages.

    Raises:
        MistifyError: they have units that this version does not know.
    """
    return tuple(
        AxisFormat(message.quantity, message.label, _kind_from_proto(message)) for message in messages
    )


def _kind_from_proto(message: pb.AxisFormat) -> QuantityKind:
    units = {"": 1.0, **message.units}
    if not message.written or not set(message.written) <= units.keys():
        raise _unknown("an axis's format", f"in units {sorted(units)}, written in {list(message.written)}")
    return QuantityKind(
        message.expected, sized(units), tuple(message.written), relative=message.relative, whole=message.whole
    )


def _source_to_proto(source: Source) -> pb.Source:
    formats = formats_to_proto(source.formats)
    return pb.Source(costs=source.costs, accuracy=source.accuracy, metric=source.metric, formats=formats)


def _source_from_proto(message: pb.Source) -> Source:
    formats = formats_from_proto(message.formats)
    return Source(dict(message.costs), message.accuracy, metric_from_proto(message.metric), formats)


def _quantization_to_proto(quantization: QuantizationConfig) -> pb.Quantization:
    return pb.Quantization(precision=quantization.precision.value, inputs=quantization.inputs)


def _quantization_from_proto(message: pb.Quantization) -> QuantizationConfig:
    if message.precision not in set(Quantization) or message.inputs not in ("float32", "int8"):
        raise _unknown("quantization", f"{message.precision} of {message.inputs}")
    return QuantizationConfig.model_validate({"precision": message.precision, "inputs": message.inputs})


def _tuning_to_proto(tuning: TuningConfig) -> pb.TrainingSettings:
    return pb.TrainingSettings(
        trainable=str(tuning.trainable), optimizer=tuning.optimizer, batch_size=tuning.batch_size
    )


def _tuning_from_proto(message: pb.TrainingSettings) -> TuningConfig:
    given = message.trainable
    try:
        return TuningConfig.model_validate(
            {
                "trainable": int(given) if given.isdecimal() else given,
                "optimizer": message.optimizer,
                "batch_size": message.batch_size,
            }
        )
    except ValidationError as error:
        raise _unknown("tuning", f"{given} by {message.optimizer}") from error


def _branches_to_proto(branches: BranchesConfig) -> pb.Branches:
    return pb.Branches(
        count=branches.count, **{"from": branches.from_}, to=branches.to, saved_model=branches.saved_model
    )


def _branches_from_proto(message: pb.Branches) -> BranchesConfig:
    return BranchesConfig.model_validate(
        {
            "count": message.count,
            "from": getattr(message, "from"),
            "to": message.to,
            "saved_model": message.saved_model,
        }
    )


def _compression_from_proto(message: pb.Compression) -> CompressionConfig:
    given = {field.name: value for field, value in message.ListFields()}
    try:
        return CompressionConfig.model_validate(given)
    except ValidationError as error:
        raise _unknown("compression", given) from error


def _progress_to_proto(progress: ProgressUpdate) -> pb.Progress:
    return pb.Progress(
        stage=progress.stage,
        step=progress.step,
        total_steps=progress.total_steps,
        costs=progress.costs,
        accuracy=progress.accuracy,
        metric=progress.metric,
    )


def _progress_from_proto(message: pb.Progress) -> ProgressUpdate:
    return ProgressUpdate(
        stage=message.stage,
        step=message.step,
        total_steps=message.total_steps,
        costs=dict(message.costs),
        accuracy=message.accuracy if message.HasField("accuracy") else None,
        metric=metric_from_proto(message.metric),
    )


_JOB_STATES: dict[JobState, pb.JobState] = {
    JobState.QUEUED: pb.JOB_STATE_QUEUED,
    JobState.RUNNING: pb.JOB_STATE_RUNNING,
    JobState.DONE: pb.JOB_STATE_DONE,
    JobState.FAILED: pb.JOB_STATE_FAILED,
    JobState.CANCELLED: pb.JOB_STATE_CANCELLED,
}
_GOAL_STATES: dict[GoalState, pb.GoalState] = {
    GoalState.WAITING: pb.GOAL_STATE_WAITING,
    GoalState.RUNNING: pb.GOAL_STATE_RUNNING,
    GoalState.MET: pb.GOAL_STATE_MET,
    GoalState.UNMET: pb.GOAL_STATE_UNMET,
    GoalState.FAILED: pb.GOAL_STATE_FAILED,
    GoalState.CANCELLED: pb.GOAL_STATE_CANCELLED,
}
_JOB_STATES_BACK = {number: state for state, number in _JOB_STATES.items()}
_GOAL_STATES_BACK = {number: state for state, number in _GOAL_STATES.items()}


def _job_state_from_proto(number: pb.JobState) -> JobState:
    if number not in _JOB_STATES_BACK:
        raise _unknown("job state", number)
    return _JOB_STATES_BACK[number]


def _goal_state_from_proto(number: pb.GoalState) -> GoalState:
    if number not in _GOAL_STATES_BACK:
        raise _unknown("goal state", number)
    return _GOAL_STATES_BACK[number]


def metric_from_proto(name: str) -> Metric:
    """A metric from its name.

    Raises:
        MistifyError: this version does not know it.
    """
    if name not in list(Metric):
        raise _unknown("metric", name)
    return Metric(name)


def _unknown(what: str, given: object) -> MistifyError:
    return MistifyError(
        ErrorCode.INTERNAL,
        f"the other side sent {what} {given}, which this version does not know; "
        "use the same version of mistify on both sides",
    )

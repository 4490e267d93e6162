from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_DONE: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_PAUSED: _ClassVar[JobState]

class JobPriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_PRIORITY_NORMAL: _ClassVar[JobPriority]
    JOB_PRIORITY_LOW: _ClassVar[JobPriority]
    JOB_PRIORITY_HIGH: _ClassVar[JobPriority]

class GoalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GOAL_STATE_UNSPECIFIED: _ClassVar[GoalState]
    GOAL_STATE_WAITING: _ClassVar[GoalState]
    GOAL_STATE_RUNNING: _ClassVar[GoalState]
    GOAL_STATE_MET: _ClassVar[GoalState]
    GOAL_STATE_UNMET: _ClassVar[GoalState]
    GOAL_STATE_FAILED: _ClassVar[GoalState]
    GOAL_STATE_CANCELLED: _ClassVar[GoalState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_DONE: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_PAUSED: JobState
JOB_PRIORITY_NORMAL: JobPriority
JOB_PRIORITY_LOW: JobPriority
JOB_PRIORITY_HIGH: JobPriority
GOAL_STATE_UNSPECIFIED: GoalState
GOAL_STATE_WAITING: GoalState
GOAL_STATE_RUNNING: GoalState
GOAL_STATE_MET: GoalState
GOAL_STATE_UNMET: GoalState
GOAL_STATE_FAILED: GoalState
GOAL_STATE_CANCELLED: GoalState

class SubmitBatchRequest(_message.Message):
    __slots__ = ("config_json", "idempotency_key", "goals", "name", "tags", "priority")
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    config_json: str
    idempotency_key: str
    goals: GoalSelection
    name: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    priority: JobPriority
    def __init__(self, config_json: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ..., name: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., priority: _Optional[_Union[JobPriority, str]] = ...) -> None: ...

class ChangeJobRequest(_message.Message):
    __slots__ = ("job_id", "name", "tags", "priority")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    tags: Tags
    priority: JobPriority
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., priority: _Optional[_Union[JobPriority, str]] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tags: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GoalSelection(_message.Message):
    __slots__ = ("goal_id", "page_size", "page_token")
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    goal_id: str
    page_size: int
    page_token: str
    def __init__(self, goal_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("config_json",)
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    config_json: str
    def __init__(self, config_json: _Optional[str] = ...) -> None: ...

class PortingPlan(_message.Message):
    __slots__ = ("batches", "out_of_reach")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_REACH_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[PlannedBatch]
    out_of_reach: _containers.RepeatedCompositeFieldContainer[OutOfReach]
    def __init__(self, batches: _Optional[_Iterable[_Union[PlannedBatch, _Mapping]]] = ..., out_of_reach: _Optional[_Iterable[_Union[OutOfReach, _Mapping]]] = ...) -> None: ...

class PlannedBatch(_message.Message):
    __slots__ = ("model", "metric", "source_costs", "source_accuracy", "source_steps", "source_seconds", "edges", "seconds", "evidence", "formats", "source_outputs", "preparations", "flips", "present_accuracy", "present_outputs", "left_out", "class_counts", "pacing")
    class SourceCostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COSTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_STEPS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PREPARATIONS_FIELD_NUMBER: _ClassVar[int]
    FLIPS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    PRESENT_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PACING_FIELD_NUMBER: _ClassVar[int]
    model: str
    metric: str
    source_costs: _containers.ScalarMap[str, float]
    source_accuracy: Interval
    source_steps: int
    source_seconds: float
    edges: _containers.RepeatedCompositeFieldContainer[PlannedEdge]
    seconds: float
    evidence: str
    formats: _containers.RepeatedCompositeFieldContainer[AxisFormat]
    source_outputs: _containers.RepeatedCompositeFieldContainer[OutputEstimate]
    preparations: _containers.RepeatedCompositeFieldContainer[PlannedPreparation]
    flips: bool
    present_accuracy: float
    present_outputs: _containers.RepeatedCompositeFieldContainer[OutputScore]
    left_out: _containers.RepeatedScalarFieldContainer[str]
    class_counts: _containers.RepeatedScalarFieldContainer[str]
    pacing: str
    def __init__(self, model: _Optional[str] = ..., metric: _Optional[str] = ..., source_costs: _Optional[_Mapping[str, float]] = ..., source_accuracy: _Optional[_Union[Interval, _Mapping]] = ..., source_steps: _Optional[int] = ..., source_seconds: _Optional[float] = ..., edges: _Optional[_Iterable[_Union[PlannedEdge, _Mapping]]] = ..., seconds: _Optional[float] = ..., evidence: _Optional[str] = ..., formats: _Optional[_Iterable[_Union[AxisFormat, _Mapping]]] = ..., source_outputs: _Optional[_Iterable[_Union[OutputEstimate, _Mapping]]] = ..., preparations: _Optional[_Iterable[_Union[PlannedPreparation, _Mapping]]] = ..., flips: _Optional[bool] = ..., present_accuracy: _Optional[float] = ..., present_outputs: _Optional[_Iterable[_Union[OutputScore, _Mapping]]] = ..., left_out: _Optional[_Iterable[str]] = ..., class_counts: _Optional[_Iterable[str]] = ..., pacing: _Optional[str] = ...) -> None: ...

class PlannedPreparation(_message.Message):
    __slots__ = ("algorithm", "steps", "seconds")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    algorithm: str
    steps: int
    seconds: float
    def __init__(self, algorithm: _Optional[str] = ..., steps: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class PlannedEdge(_message.Message):
    __slots__ = ("goals", "parent", "budget", "algorithm", "choice", "costs", "accuracy", "targets", "steps", "seconds", "warning", "precisions", "outputs", "task")
    class BudgetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class CostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class PrecisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GOALS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    PRECISIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    goals: _containers.RepeatedScalarFieldContainer[str]
    parent: str
    budget: _containers.ScalarMap[str, float]
    algorithm: str
    choice: str
    costs: _containers.ScalarMap[str, float]
    accuracy: Interval
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    steps: int
    seconds: float
    warning: str
    precisions: _containers.ScalarMap[str, str]
    outputs: _containers.RepeatedCompositeFieldContainer[OutputEstimate]
    task: Task
    def __init__(self, goals: _Optional[_Iterable[str]] = ..., parent: _Optional[str] = ..., budget: _Optional[_Mapping[str, float]] = ..., algorithm: _Optional[str] = ..., choice: _Optional[str] = ..., costs: _Optional[_Mapping[str, float]] = ..., accuracy: _Optional[_Union[Interval, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., steps: _Optional[int] = ..., seconds: _Optional[float] = ..., warning: _Optional[str] = ..., precisions: _Optional[_Mapping[str, str]] = ..., outputs: _Optional[_Iterable[_Union[OutputEstimate, _Mapping]]] = ..., task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class OutputEstimate(_message.Message):
    __slots__ = ("output", "metric", "interval")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    output: str
    metric: str
    interval: Interval
    def __init__(self, output: _Optional[str] = ..., metric: _Optional[str] = ..., interval: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ("middle", "low", "high")
    MIDDLE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    middle: float
    low: float
    high: float
    def __init__(self, middle: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class OutOfReach(_message.Message):
    __slots__ = ("goal", "limit", "value", "nearest")
    GOAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NEAREST_FIELD_NUMBER: _ClassVar[int]
    goal: str
    limit: str
    value: str
    nearest: str
    def __init__(self, goal: _Optional[str] = ..., limit: _Optional[str] = ..., value: _Optional[str] = ..., nearest: _Optional[str] = ...) -> None: ...

class AddGoalsRequest(_message.Message):
    __slots__ = ("job_id", "config_json", "idempotency_key", "goals")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    config_json: str
    idempotency_key: str
    goals: GoalSelection
    def __init__(self, job_id: _Optional[str] = ..., config_json: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id", "goals")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goals: GoalSelection
    def __init__(self, job_id: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "goals", "search", "removed")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    goals: GoalSelection
    search: str
    removed: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ..., search: _Optional[str] = ..., removed: _Optional[bool] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "unreadable")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    unreadable: _containers.RepeatedCompositeFieldContainer[UnreadableJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., unreadable: _Optional[_Iterable[_Union[UnreadableJob, _Mapping]]] = ...) -> None: ...

class UnreadableJob(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id", "goals")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goals: GoalSelection
    def __init__(self, job_id: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ...) -> None: ...

class PauseJobRequest(_message.Message):
    __slots__ = ("job_id", "goals")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goals: GoalSelection
    def __init__(self, job_id: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ...) -> None: ...

class ResumeJobRequest(_message.Message):
    __slots__ = ("job_id", "goals")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goals: GoalSelection
    def __init__(self, job_id: _Optional[str] = ..., goals: _Optional[_Union[GoalSelection, _Mapping]] = ...) -> None: ...

class RemoveJobRequest(_message.Message):
    __slots__ = ("job_id", "now")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    now: bool
    def __init__(self, job_id: _Optional[str] = ..., now: _Optional[bool] = ...) -> None: ...

class RemoveJobResponse(_message.Message):
    __slots__ = ("freed_bytes", "undo_until_unix_ms")
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNDO_UNTIL_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    undo_until_unix_ms: int
    def __init__(self, freed_bytes: _Optional[int] = ..., undo_until_unix_ms: _Optional[int] = ...) -> None: ...

class RestoreJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class RestoreJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "state", "seconds", "sources", "goals", "reason", "created_unix_ms", "spent", "goal_count", "goals_met", "next_page_token", "submitted_by", "name", "tags", "removed_unix_ms", "priority")
    class SpentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    GOALS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    GOAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    GOALS_MET_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: JobState
    seconds: float
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    goals: _containers.RepeatedCompositeFieldContainer[Goal]
    reason: str
    created_unix_ms: int
    spent: _containers.ScalarMap[str, float]
    goal_count: int
    goals_met: int
    next_page_token: str
    submitted_by: str
    name: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    removed_unix_ms: int
    priority: JobPriority
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., seconds: _Optional[float] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., goals: _Optional[_Iterable[_Union[Goal, _Mapping]]] = ..., reason: _Optional[str] = ..., created_unix_ms: _Optional[int] = ..., spent: _Optional[_Mapping[str, float]] = ..., goal_count: _Optional[int] = ..., goals_met: _Optional[int] = ..., next_page_token: _Optional[str] = ..., submitted_by: _Optional[str] = ..., name: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., removed_unix_ms: _Optional[int] = ..., priority: _Optional[_Union[JobPriority, str]] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("costs", "accuracy", "metric", "formats", "tuned_accuracy", "measured", "steps", "preparing_steps", "batch", "model", "output_scores", "tuned_output_scores")
    class CostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MeasuredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class PreparingStepsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COSTS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    TUNED_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    PREPARING_STEPS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCORES_FIELD_NUMBER: _ClassVar[int]
    TUNED_OUTPUT_SCORES_FIELD_NUMBER: _ClassVar[int]
    costs: _containers.ScalarMap[str, float]
    accuracy: float
    metric: str
    formats: _containers.RepeatedCompositeFieldContainer[AxisFormat]
    tuned_accuracy: float
    measured: _containers.ScalarMap[str, float]
    steps: int
    preparing_steps: _containers.ScalarMap[str, int]
    batch: int
    model: str
    output_scores: _containers.RepeatedCompositeFieldContainer[OutputScore]
    tuned_output_scores: _containers.RepeatedCompositeFieldContainer[OutputScore]
    def __init__(self, costs: _Optional[_Mapping[str, float]] = ..., accuracy: _Optional[float] = ..., metric: _Optional[str] = ..., formats: _Optional[_Iterable[_Union[AxisFormat, _Mapping]]] = ..., tuned_accuracy: _Optional[float] = ..., measured: _Optional[_Mapping[str, float]] = ..., steps: _Optional[int] = ..., preparing_steps: _Optional[_Mapping[str, int]] = ..., batch: _Optional[int] = ..., model: _Optional[str] = ..., output_scores: _Optional[_Iterable[_Union[OutputScore, _Mapping]]] = ..., tuned_output_scores: _Optional[_Iterable[_Union[OutputScore, _Mapping]]] = ...) -> None: ...

class AxisFormat(_message.Message):
    __slots__ = ("quantity", "label", "units", "written", "whole", "relative", "expected")
    class UnitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    quantity: str
    label: str
    units: _containers.ScalarMap[str, float]
    written: _containers.RepeatedScalarFieldContainer[str]
    whole: bool
    relative: bool
    expected: str
    def __init__(self, quantity: _Optional[str] = ..., label: _Optional[str] = ..., units: _Optional[_Mapping[str, float]] = ..., written: _Optional[_Iterable[str]] = ..., whole: _Optional[bool] = ..., relative: _Optional[bool] = ..., expected: _Optional[str] = ...) -> None: ...

class Goal(_message.Message):
    __slots__ = ("id", "parent", "state", "achieved", "accuracy", "reason", "seconds", "steps", "files", "batch", "metric", "measured", "note", "branch_figures", "precision_choice", "algorithm", "choice", "warning", "output_scores", "spec")
    class AchievedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MeasuredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ACHIEVED_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIGURES_FIELD_NUMBER: _ClassVar[int]
    PRECISION_CHOICE_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCORES_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    id: str
    parent: str
    state: GoalState
    achieved: _containers.ScalarMap[str, float]
    accuracy: float
    reason: str
    seconds: float
    steps: int
    files: _containers.RepeatedCompositeFieldContainer[PackageFile]
    batch: int
    metric: str
    measured: _containers.ScalarMap[str, float]
    note: str
    branch_figures: _containers.RepeatedCompositeFieldContainer[BranchFigures]
    precision_choice: str
    algorithm: str
    choice: str
    warning: str
    output_scores: _containers.RepeatedCompositeFieldContainer[OutputScore]
    spec: PackageSpec
    def __init__(self, id: _Optional[str] = ..., parent: _Optional[str] = ..., state: _Optional[_Union[GoalState, str]] = ..., achieved: _Optional[_Mapping[str, float]] = ..., accuracy: _Optional[float] = ..., reason: _Optional[str] = ..., seconds: _Optional[float] = ..., steps: _Optional[int] = ..., files: _Optional[_Iterable[_Union[PackageFile, _Mapping]]] = ..., batch: _Optional[int] = ..., metric: _Optional[str] = ..., measured: _Optional[_Mapping[str, float]] = ..., note: _Optional[str] = ..., branch_figures: _Optional[_Iterable[_Union[BranchFigures, _Mapping]]] = ..., precision_choice: _Optional[str] = ..., algorithm: _Optional[str] = ..., choice: _Optional[str] = ..., warning: _Optional[str] = ..., output_scores: _Optional[_Iterable[_Union[OutputScore, _Mapping]]] = ..., spec: _Optional[_Union[PackageSpec, _Mapping]] = ...) -> None: ...

class PackageSpec(_message.Message):
    __slots__ = ("budget", "targets", "quantization", "threads", "branches", "compression", "tuning", "task", "exits")
    class BudgetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    TUNING_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    budget: _containers.ScalarMap[str, float]
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    quantization: Quantization
    threads: int
    branches: Branches
    compression: Compression
    tuning: TrainingSettings
    task: Task
    exits: Exits
    def __init__(self, budget: _Optional[_Mapping[str, float]] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., quantization: _Optional[_Union[Quantization, _Mapping]] = ..., threads: _Optional[int] = ..., branches: _Optional[_Union[Branches, _Mapping]] = ..., compression: _Optional[_Union[Compression, _Mapping]] = ..., tuning: _Optional[_Union[TrainingSettings, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., exits: _Optional[_Union[Exits, _Mapping]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("properties", "classes")
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.RepeatedScalarFieldContainer[str]
    classes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, properties: _Optional[_Iterable[str]] = ..., classes: _Optional[_Iterable[str]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("output", "metric", "value")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    output: str
    metric: str
    value: float
    def __init__(self, output: _Optional[str] = ..., metric: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class OutputScore(_message.Message):
    __slots__ = ("output", "metric", "value")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    output: str
    metric: str
    value: float
    def __init__(self, output: _Optional[str] = ..., metric: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class BranchFigures(_message.Message):
    __slots__ = ("share", "achieved", "measured", "accuracy")
    class AchievedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MeasuredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SHARE_FIELD_NUMBER: _ClassVar[int]
    ACHIEVED_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    share: float
    achieved: _containers.ScalarMap[str, float]
    measured: _containers.ScalarMap[str, float]
    accuracy: float
    def __init__(self, share: _Optional[float] = ..., achieved: _Optional[_Mapping[str, float]] = ..., measured: _Optional[_Mapping[str, float]] = ..., accuracy: _Optional[float] = ...) -> None: ...

class TrainingSettings(_message.Message):
    __slots__ = ("trainable", "optimizer", "batch_size", "micro_batch", "adaptation")
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCH_FIELD_NUMBER: _ClassVar[int]
    ADAPTATION_FIELD_NUMBER: _ClassVar[int]
    trainable: str
    optimizer: str
    batch_size: int
    micro_batch: int
    adaptation: bool
    def __init__(self, trainable: _Optional[str] = ..., optimizer: _Optional[str] = ..., batch_size: _Optional[int] = ..., micro_batch: _Optional[int] = ..., adaptation: _Optional[bool] = ...) -> None: ...

class Branches(_message.Message):
    __slots__ = ("count", "to", "saved_model")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    SAVED_MODEL_FIELD_NUMBER: _ClassVar[int]
    count: int
    to: float
    saved_model: bool
    def __init__(self, count: _Optional[int] = ..., to: _Optional[float] = ..., saved_model: _Optional[bool] = ..., **kwargs) -> None: ...

class Exits(_message.Message):
    __slots__ = ("loss", "after")
    LOSS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    loss: _containers.RepeatedScalarFieldContainer[float]
    after: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, loss: _Optional[_Iterable[float]] = ..., after: _Optional[_Iterable[str]] = ...) -> None: ...

class Compression(_message.Message):
    __slots__ = ("sparsity", "clusters")
    SPARSITY_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    sparsity: float
    clusters: int
    def __init__(self, sparsity: _Optional[float] = ..., clusters: _Optional[int] = ...) -> None: ...

class Quantization(_message.Message):
    __slots__ = ("precision", "inputs")
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    precision: str
    inputs: str
    def __init__(self, precision: _Optional[str] = ..., inputs: _Optional[str] = ...) -> None: ...

class PackageFile(_message.Message):
    __slots__ = ("name", "size", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    size: int
    sha256: str
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id", "after_sequence", "so_far", "grouped")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SO_FAR_FIELD_NUMBER: _ClassVar[int]
    GROUPED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    after_sequence: int
    so_far: bool
    grouped: bool
    def __init__(self, job_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., so_far: _Optional[bool] = ..., grouped: _Optional[bool] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("sequence", "unix_ms", "goal_id", "job_state", "goal_state", "progress", "following")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_STATE_FIELD_NUMBER: _ClassVar[int]
    GOAL_STATE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    unix_ms: int
    goal_id: str
    job_state: JobState
    goal_state: GoalState
    progress: Progress
    following: _containers.RepeatedCompositeFieldContainer[JobEvent]
    def __init__(self, sequence: _Optional[int] = ..., unix_ms: _Optional[int] = ..., goal_id: _Optional[str] = ..., job_state: _Optional[_Union[JobState, str]] = ..., goal_state: _Optional[_Union[GoalState, str]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., following: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("stage", "step", "total_steps", "costs", "accuracy", "metric", "loss", "relative_costs", "structure_loss_weights", "job_share", "seconds_left")
    class CostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class RelativeCostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class StructureLossWeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_COSTS_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_LOSS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    JOB_SHARE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    stage: str
    step: int
    total_steps: int
    costs: _containers.ScalarMap[str, float]
    accuracy: float
    metric: str
    loss: float
    relative_costs: _containers.ScalarMap[str, float]
    structure_loss_weights: _containers.ScalarMap[str, float]
    job_share: float
    seconds_left: float
    def __init__(self, stage: _Optional[str] = ..., step: _Optional[int] = ..., total_steps: _Optional[int] = ..., costs: _Optional[_Mapping[str, float]] = ..., accuracy: _Optional[float] = ..., metric: _Optional[str] = ..., loss: _Optional[float] = ..., relative_costs: _Optional[_Mapping[str, float]] = ..., structure_loss_weights: _Optional[_Mapping[str, float]] = ..., job_share: _Optional[float] = ..., seconds_left: _Optional[float] = ...) -> None: ...

class GetGoalDetailsRequest(_message.Message):
    __slots__ = ("job_id", "goal_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goal_id: str
    def __init__(self, job_id: _Optional[str] = ..., goal_id: _Optional[str] = ...) -> None: ...

class GoalDetails(_message.Message):
    __slots__ = ("layers", "curve", "sequence", "graph")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    CURVE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    layers: LayerTable
    curve: _containers.RepeatedCompositeFieldContainer[Progress]
    sequence: int
    graph: NetworkGraph
    def __init__(self, layers: _Optional[_Union[LayerTable, _Mapping]] = ..., curve: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ..., sequence: _Optional[int] = ..., graph: _Optional[_Union[NetworkGraph, _Mapping]] = ...) -> None: ...

class LayerTable(_message.Message):
    __slots__ = ("hardware", "layers")
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    hardware: str
    layers: _containers.RepeatedCompositeFieldContainer[LayerChange]
    def __init__(self, hardware: _Optional[str] = ..., layers: _Optional[_Iterable[_Union[LayerChange, _Mapping]]] = ...) -> None: ...

class LayerChange(_message.Message):
    __slots__ = ("name", "kind", "groups", "before", "after")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    before: LayerFigures
    after: LayerFigures
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., before: _Optional[_Union[LayerFigures, _Mapping]] = ..., after: _Optional[_Union[LayerFigures, _Mapping]] = ...) -> None: ...

class LayerFigures(_message.Message):
    __slots__ = ("width", "params", "multiply_adds", "milliseconds")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLY_ADDS_FIELD_NUMBER: _ClassVar[int]
    MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    width: int
    params: int
    multiply_adds: int
    milliseconds: float
    def __init__(self, width: _Optional[int] = ..., params: _Optional[int] = ..., multiply_adds: _Optional[int] = ..., milliseconds: _Optional[float] = ...) -> None: ...

class NetworkGraph(_message.Message):
    __slots__ = ("name", "hardware", "nodes", "examples")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    name: str
    hardware: str
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    examples: int
    def __init__(self, name: _Optional[str] = ..., hardware: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., examples: _Optional[int] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("operator", "index", "layer", "inputs", "shape", "type", "output_bytes", "weight_type", "weights", "weight_bytes", "multiply_adds", "milliseconds", "error", "output")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_TYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MULTIPLY_ADDS_FIELD_NUMBER: _ClassVar[int]
    MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    operator: str
    index: int
    layer: str
    inputs: _containers.RepeatedScalarFieldContainer[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    type: str
    output_bytes: int
    weight_type: str
    weights: int
    weight_bytes: int
    multiply_adds: int
    milliseconds: float
    error: float
    output: str
    def __init__(self, operator: _Optional[str] = ..., index: _Optional[int] = ..., layer: _Optional[str] = ..., inputs: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[int]] = ..., type: _Optional[str] = ..., output_bytes: _Optional[int] = ..., weight_type: _Optional[str] = ..., weights: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., multiply_adds: _Optional[int] = ..., milliseconds: _Optional[float] = ..., error: _Optional[float] = ..., output: _Optional[str] = ...) -> None: ...

class FetchPackageRequest(_message.Message):
    __slots__ = ("job_id", "goal_id", "file", "offset")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goal_id: str
    file: str
    offset: int
    def __init__(self, job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class PackageChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class FetchReportRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ReportChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class GetConfigRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class JobConfig(_message.Message):
    __slots__ = ("config_json",)
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    config_json: str
    def __init__(self, config_json: _Optional[str] = ...) -> None: ...

class GetSigningKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SigningKeys(_message.Message):
    __slots__ = ("first", "rotations")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ROTATIONS_FIELD_NUMBER: _ClassVar[int]
    first: str
    rotations: _containers.RepeatedCompositeFieldContainer[KeyRotation]
    def __init__(self, first: _Optional[str] = ..., rotations: _Optional[_Iterable[_Union[KeyRotation, _Mapping]]] = ...) -> None: ...

class KeyRotation(_message.Message):
    __slots__ = ("key", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: str
    signature: str
    def __init__(self, key: _Optional[str] = ..., signature: _Optional[str] = ...) -> None: ...

class GetCallerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Caller(_message.Message):
    __slots__ = ("name", "scopes", "limits", "usage", "tenant")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    limits: Quota
    usage: Usage
    tenant: str
    def __init__(self, name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Quota, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., tenant: _Optional[str] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("uploads", "jobs", "workers")
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    uploads: int
    jobs: int
    workers: int
    def __init__(self, uploads: _Optional[int] = ..., jobs: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("uploads", "jobs", "workers")
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    uploads: int
    jobs: int
    workers: int
    def __init__(self, uploads: _Optional[int] = ..., jobs: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("code", "message", "problems")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    problems: _containers.RepeatedCompositeFieldContainer[ErrorProblem]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., problems: _Optional[_Iterable[_Union[ErrorProblem, _Mapping]]] = ...) -> None: ...

class ErrorProblem(_message.Message):
    __slots__ = ("place", "value", "expected", "fix")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    place: str
    value: str
    expected: str
    fix: str
    def __init__(self, place: _Optional[str] = ..., value: _Optional[str] = ..., expected: _Optional[str] = ..., fix: _Optional[str] = ...) -> None: ...

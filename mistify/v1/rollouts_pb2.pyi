from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StartRolloutRequest(_message.Message):
    __slots__ = ("job_id", "goal_id", "package", "devices", "stages", "criteria")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goal_id: str
    package: str
    devices: str
    stages: _containers.RepeatedScalarFieldContainer[float]
    criteria: RolloutCriteria
    def __init__(self, job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., package: _Optional[str] = ..., devices: _Optional[str] = ..., stages: _Optional[_Iterable[float]] = ..., criteria: _Optional[_Union[RolloutCriteria, _Mapping]] = ...) -> None: ...

class RolloutCriteria(_message.Message):
    __slots__ = ("after_seconds", "devices", "errors", "latency", "agreement")
    AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    after_seconds: float
    devices: int
    errors: float
    latency: float
    agreement: float
    def __init__(self, after_seconds: _Optional[float] = ..., devices: _Optional[int] = ..., errors: _Optional[float] = ..., latency: _Optional[float] = ..., agreement: _Optional[float] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("id", "job_id", "goal_id", "digest", "package", "devices", "stages", "criteria", "state", "stage", "since_unix_ms", "reason", "created_unix_ms", "started_by", "outcome")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_BY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    id: str
    job_id: str
    goal_id: str
    digest: str
    package: str
    devices: str
    stages: _containers.RepeatedScalarFieldContainer[float]
    criteria: RolloutCriteria
    state: str
    stage: int
    since_unix_ms: int
    reason: str
    created_unix_ms: int
    started_by: str
    outcome: RolloutOutcome
    def __init__(self, id: _Optional[str] = ..., job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., digest: _Optional[str] = ..., package: _Optional[str] = ..., devices: _Optional[str] = ..., stages: _Optional[_Iterable[float]] = ..., criteria: _Optional[_Union[RolloutCriteria, _Mapping]] = ..., state: _Optional[str] = ..., stage: _Optional[int] = ..., since_unix_ms: _Optional[int] = ..., reason: _Optional[str] = ..., created_unix_ms: _Optional[int] = ..., started_by: _Optional[str] = ..., outcome: _Optional[_Union[RolloutOutcome, _Mapping]] = ...) -> None: ...

class RolloutOutcome(_message.Message):
    __slots__ = ("stages", "figures")
    STAGES_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    stages: _containers.RepeatedCompositeFieldContainer[StageProgress]
    figures: RolloutFigures
    def __init__(self, stages: _Optional[_Iterable[_Union[StageProgress, _Mapping]]] = ..., figures: _Optional[_Union[RolloutFigures, _Mapping]] = ...) -> None: ...

class RolloutProgress(_message.Message):
    __slots__ = ("rollout", "stages", "figures", "running")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    stages: _containers.RepeatedCompositeFieldContainer[StageProgress]
    figures: RolloutFigures
    running: int
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[StageProgress, _Mapping]]] = ..., figures: _Optional[_Union[RolloutFigures, _Mapping]] = ..., running: _Optional[int] = ...) -> None: ...

class StageProgress(_message.Message):
    __slots__ = ("share", "devices", "installed", "installing", "failed")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    INSTALLING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    share: float
    devices: int
    installed: int
    installing: int
    failed: int
    def __init__(self, share: _Optional[float] = ..., devices: _Optional[int] = ..., installed: _Optional[int] = ..., installing: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...

class RolloutFigures(_message.Message):
    __slots__ = ("errors", "latency", "agreement")
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    errors: float
    latency: float
    agreement: float
    def __init__(self, errors: _Optional[float] = ..., latency: _Optional[float] = ..., agreement: _Optional[float] = ...) -> None: ...

class RolloutId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListRolloutsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRolloutsResponse(_message.Message):
    __slots__ = ("rollouts",)
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    rollouts: _containers.RepeatedCompositeFieldContainer[RolloutProgress]
    def __init__(self, rollouts: _Optional[_Iterable[_Union[RolloutProgress, _Mapping]]] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeviceTable(_message.Message):
    __slots__ = ("name", "machine", "runtime", "readings", "powers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    POWERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    machine: str
    runtime: str
    readings: _containers.RepeatedCompositeFieldContainer[Reading]
    powers: _containers.RepeatedCompositeFieldContainer[Power]
    def __init__(self, name: _Optional[str] = ..., machine: _Optional[str] = ..., runtime: _Optional[str] = ..., readings: _Optional[_Iterable[_Union[Reading, _Mapping]]] = ..., powers: _Optional[_Iterable[_Union[Power, _Mapping]]] = ...) -> None: ...

class Power(_message.Message):
    __slots__ = ("integer", "threads", "watts")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    WATTS_FIELD_NUMBER: _ClassVar[int]
    integer: bool
    threads: int
    watts: float
    def __init__(self, integer: _Optional[bool] = ..., threads: _Optional[int] = ..., watts: _Optional[float] = ...) -> None: ...

class Reading(_message.Message):
    __slots__ = ("operations", "integer", "threads", "median_ms")
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_MS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    integer: bool
    threads: int
    median_ms: float
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., integer: _Optional[bool] = ..., threads: _Optional[int] = ..., median_ms: _Optional[float] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("kind", "positions", "c_in", "c_out", "kernel", "stride", "times")
    KIND_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    C_IN_FIELD_NUMBER: _ClassVar[int]
    C_OUT_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    positions: int
    c_in: int
    c_out: int
    kernel: int
    stride: int
    times: int
    def __init__(self, kind: _Optional[str] = ..., positions: _Optional[int] = ..., c_in: _Optional[int] = ..., c_out: _Optional[int] = ..., kernel: _Optional[int] = ..., stride: _Optional[int] = ..., times: _Optional[int] = ...) -> None: ...

class ReportLatencyRequest(_message.Message):
    __slots__ = ("device", "job_id", "goal_id", "median_ms")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_MS_FIELD_NUMBER: _ClassVar[int]
    device: str
    job_id: str
    goal_id: str
    median_ms: float
    def __init__(self, device: _Optional[str] = ..., job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., median_ms: _Optional[float] = ...) -> None: ...

class ReportLatencyResponse(_message.Message):
    __slots__ = ("predicted_ms", "factor")
    PREDICTED_MS_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    predicted_ms: float
    factor: float
    def __init__(self, predicted_ms: _Optional[float] = ..., factor: _Optional[float] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDevicesResponse(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("name", "machine", "runtime", "settings", "registered_unix_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    machine: str
    runtime: str
    settings: _containers.RepeatedCompositeFieldContainer[DeviceSetting]
    registered_unix_ms: int
    def __init__(self, name: _Optional[str] = ..., machine: _Optional[str] = ..., runtime: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[DeviceSetting, _Mapping]]] = ..., registered_unix_ms: _Optional[int] = ...) -> None: ...

class DeviceSetting(_message.Message):
    __slots__ = ("integer", "threads", "median_error", "p90_error", "watts")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_ERROR_FIELD_NUMBER: _ClassVar[int]
    P90_ERROR_FIELD_NUMBER: _ClassVar[int]
    WATTS_FIELD_NUMBER: _ClassVar[int]
    integer: bool
    threads: int
    median_error: float
    p90_error: float
    watts: float
    def __init__(self, integer: _Optional[bool] = ..., threads: _Optional[int] = ..., median_error: _Optional[float] = ..., p90_error: _Optional[float] = ..., watts: _Optional[float] = ...) -> None: ...

class DeviceStatus(_message.Message):
    __slots__ = ("name", "job_id", "goal_id", "branch", "branches", "latency_ms", "expected_ms", "idle", "fits", "reason", "targets", "problems", "last_switch", "pool", "option", "options", "adaptation", "rollouts")
    class TargetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ProblemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    LAST_SWITCH_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ADAPTATION_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    job_id: str
    goal_id: str
    branch: int
    branches: int
    latency_ms: float
    expected_ms: float
    idle: bool
    fits: bool
    reason: str
    targets: _containers.ScalarMap[str, str]
    problems: _containers.ScalarMap[str, str]
    last_switch: LastSwitch
    pool: DevicePool
    option: str
    options: int
    adaptation: DeviceAdaptation
    rollouts: DeviceRollouts
    def __init__(self, name: _Optional[str] = ..., job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., branch: _Optional[int] = ..., branches: _Optional[int] = ..., latency_ms: _Optional[float] = ..., expected_ms: _Optional[float] = ..., idle: _Optional[bool] = ..., fits: _Optional[bool] = ..., reason: _Optional[str] = ..., targets: _Optional[_Mapping[str, str]] = ..., problems: _Optional[_Mapping[str, str]] = ..., last_switch: _Optional[_Union[LastSwitch, _Mapping]] = ..., pool: _Optional[_Union[DevicePool, _Mapping]] = ..., option: _Optional[str] = ..., options: _Optional[int] = ..., adaptation: _Optional[_Union[DeviceAdaptation, _Mapping]] = ..., rollouts: _Optional[_Union[DeviceRollouts, _Mapping]] = ...) -> None: ...

class DeviceRollouts(_message.Message):
    __slots__ = ("package", "measured_ms", "installation")
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_MS_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    package: str
    measured_ms: float
    installation: DeviceInstallation
    def __init__(self, package: _Optional[str] = ..., measured_ms: _Optional[float] = ..., installation: _Optional[_Union[DeviceInstallation, _Mapping]] = ...) -> None: ...

class DeviceInstallation(_message.Message):
    __slots__ = ("rollout", "phase", "reason", "before_ms", "agreement")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    rollout: str
    phase: str
    reason: str
    before_ms: float
    agreement: float
    def __init__(self, rollout: _Optional[str] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., before_ms: _Optional[float] = ..., agreement: _Optional[float] = ...) -> None: ...

class DeviceAdaptation(_message.Message):
    __slots__ = ("adapted_unix_ms", "shift", "examples")
    ADAPTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    adapted_unix_ms: int
    shift: float
    examples: int
    def __init__(self, adapted_unix_ms: _Optional[int] = ..., shift: _Optional[float] = ..., examples: _Optional[int] = ...) -> None: ...

class DevicePool(_message.Message):
    __slots__ = ("metric", "examples", "original_ms", "subnets")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_MS_FIELD_NUMBER: _ClassVar[int]
    SUBNETS_FIELD_NUMBER: _ClassVar[int]
    metric: str
    examples: int
    original_ms: float
    subnets: _containers.RepeatedCompositeFieldContainer[DeviceSubnet]
    def __init__(self, metric: _Optional[str] = ..., examples: _Optional[int] = ..., original_ms: _Optional[float] = ..., subnets: _Optional[_Iterable[_Union[DeviceSubnet, _Mapping]]] = ...) -> None: ...

class DeviceSubnet(_message.Message):
    __slots__ = ("latency_ms", "accuracy")
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    latency_ms: float
    accuracy: float
    def __init__(self, latency_ms: _Optional[float] = ..., accuracy: _Optional[float] = ...) -> None: ...

class LastSwitch(_message.Message):
    __slots__ = ("unix_ms", "previous_place", "reason", "previous")
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_PLACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    unix_ms: int
    previous_place: int
    reason: str
    previous: str
    def __init__(self, unix_ms: _Optional[int] = ..., previous_place: _Optional[int] = ..., reason: _Optional[str] = ..., previous: _Optional[str] = ...) -> None: ...

class ReportStatusResponse(_message.Message):
    __slots__ = ("wanted", "withdrawn")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    wanted: WantedPackage
    withdrawn: str
    def __init__(self, wanted: _Optional[_Union[WantedPackage, _Mapping]] = ..., withdrawn: _Optional[str] = ...) -> None: ...

class WantedPackage(_message.Message):
    __slots__ = ("rollout", "job_id", "goal_id", "digest")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    rollout: str
    job_id: str
    goal_id: str
    digest: str
    def __init__(self, rollout: _Optional[str] = ..., job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

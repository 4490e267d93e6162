from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("network", "announcement", "inference", "probe")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    network: NetworkOfBlocks
    announcement: Announcement
    inference: InferenceRequest
    probe: Probe
    def __init__(self, network: _Optional[_Union[NetworkOfBlocks, _Mapping]] = ..., announcement: _Optional[_Union[Announcement, _Mapping]] = ..., inference: _Optional[_Union[InferenceRequest, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ...) -> None: ...

class NetworkOfBlocks(_message.Message):
    __slots__ = ("blocks", "starts")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedScalarFieldContainer[str]
    starts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, blocks: _Optional[_Iterable[str]] = ..., starts: _Optional[_Iterable[int]] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InferenceRequest(_message.Message):
    __slots__ = ("number", "segment", "tensors", "end", "rounded_answer")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ROUNDED_ANSWER_FIELD_NUMBER: _ClassVar[int]
    number: int
    segment: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorContent]
    end: int
    rounded_answer: bool
    def __init__(self, number: _Optional[int] = ..., segment: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorContent, _Mapping]]] = ..., end: _Optional[int] = ..., rounded_answer: _Optional[bool] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("number", "content")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    number: int
    content: bytes
    def __init__(self, number: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class TensorContent(_message.Message):
    __slots__ = ("content", "crc32", "in_bytes", "rounding")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    crc32: int
    in_bytes: bool
    rounding: Rounding
    def __init__(self, content: _Optional[bytes] = ..., crc32: _Optional[int] = ..., in_bytes: _Optional[bool] = ..., rounding: _Optional[_Union[Rounding, _Mapping]] = ...) -> None: ...

class Rounding(_message.Message):
    __slots__ = ("step", "least")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    step: float
    least: float
    def __init__(self, step: _Optional[float] = ..., least: _Optional[float] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("ready", "answer")
    READY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ready: NetworkReady
    answer: InferenceAnswer
    def __init__(self, ready: _Optional[_Union[NetworkReady, _Mapping]] = ..., answer: _Optional[_Union[InferenceAnswer, _Mapping]] = ...) -> None: ...

class NetworkReady(_message.Message):
    __slots__ = ("segment_ms", "rate")
    SEGMENT_MS_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    segment_ms: _containers.RepeatedScalarFieldContainer[float]
    rate: float
    def __init__(self, segment_ms: _Optional[_Iterable[float]] = ..., rate: _Optional[float] = ...) -> None: ...

class InferenceAnswer(_message.Message):
    __slots__ = ("number", "tensors", "computing_ms", "serving_ms", "transfer_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    COMPUTING_MS_FIELD_NUMBER: _ClassVar[int]
    SERVING_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorContent]
    computing_ms: float
    serving_ms: float
    transfer_ms: float
    def __init__(self, number: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorContent, _Mapping]]] = ..., computing_ms: _Optional[float] = ..., serving_ms: _Optional[float] = ..., transfer_ms: _Optional[float] = ...) -> None: ...

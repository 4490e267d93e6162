from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberKey(_message.Message):
    __slots__ = ("group", "secret")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    group: str
    secret: bytes
    def __init__(self, group: _Optional[str] = ..., secret: _Optional[bytes] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: MemberKey
    def __init__(self, key: _Optional[_Union[MemberKey, _Mapping]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("member", "lease_seconds", "correlation", "settings_json", "version")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    member: str
    lease_seconds: float
    correlation: str
    settings_json: str
    version: int
    def __init__(self, member: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., correlation: _Optional[str] = ..., settings_json: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class PackageReference(_message.Message):
    __slots__ = ("job_id", "goal_id", "sha256")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_ID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    goal_id: str
    sha256: str
    def __init__(self, job_id: _Optional[str] = ..., goal_id: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("latitude", "longitude")
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    latitude: float
    longitude: float
    def __init__(self, latitude: _Optional[float] = ..., longitude: _Optional[float] = ...) -> None: ...

class Hints(_message.Message):
    __slots__ = ("location", "unix_ms", "view_degrees", "features", "labels")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    VIEW_DEGREES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    location: Location
    unix_ms: int
    view_degrees: float
    features: _containers.RepeatedScalarFieldContainer[float]
    labels: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, location: _Optional[_Union[Location, _Mapping]] = ..., unix_ms: _Optional[int] = ..., view_degrees: _Optional[float] = ..., features: _Optional[_Iterable[float]] = ..., labels: _Optional[_Iterable[float]] = ...) -> None: ...

class Publication(_message.Message):
    __slots__ = ("package", "version", "loss", "accuracy", "hints", "size", "sha256")
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    package: PackageReference
    version: int
    loss: float
    accuracy: float
    hints: Hints
    size: int
    sha256: str
    def __init__(self, package: _Optional[_Union[PackageReference, _Mapping]] = ..., version: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., hints: _Optional[_Union[Hints, _Mapping]] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class PublishHeader(_message.Message):
    __slots__ = ("key", "publication")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    key: MemberKey
    publication: Publication
    def __init__(self, key: _Optional[_Union[MemberKey, _Mapping]] = ..., publication: _Optional[_Union[Publication, _Mapping]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: PublishHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[PublishHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class PeersRequest(_message.Message):
    __slots__ = ("key", "count", "held")
    class HeldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    key: MemberKey
    count: int
    held: _containers.ScalarMap[str, int]
    def __init__(self, key: _Optional[_Union[MemberKey, _Mapping]] = ..., count: _Optional[int] = ..., held: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("member", "package", "version", "loss", "accuracy", "distance", "size", "sha256")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    member: str
    package: PackageReference
    version: int
    loss: float
    accuracy: float
    distance: float
    size: int
    sha256: str
    def __init__(self, member: _Optional[str] = ..., package: _Optional[_Union[PackageReference, _Mapping]] = ..., version: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., distance: _Optional[float] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class PeersResponse(_message.Message):
    __slots__ = ("peer", "data")
    PEER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    peer: Peer
    data: bytes
    def __init__(self, peer: _Optional[_Union[Peer, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: MemberKey
    def __init__(self, key: _Optional[_Union[MemberKey, _Mapping]] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

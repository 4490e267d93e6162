from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileDigest(_message.Message):
    __slots__ = ("sha256", "size")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    size: int
    def __init__(self, sha256: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class FindFilesRequest(_message.Message):
    __slots__ = ("files", "for_job")
    FILES_FIELD_NUMBER: _ClassVar[int]
    FOR_JOB_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileDigest]
    for_job: bool
    def __init__(self, files: _Optional[_Iterable[_Union[FileDigest, _Mapping]]] = ..., for_job: _Optional[bool] = ...) -> None: ...

class FindFilesResponse(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[FileState]
    def __init__(self, states: _Optional[_Iterable[_Union[FileState, _Mapping]]] = ...) -> None: ...

class FileState(_message.Message):
    __slots__ = ("complete", "arrived")
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    arrived: int
    def __init__(self, complete: _Optional[bool] = ..., arrived: _Optional[int] = ...) -> None: ...

class UploadFileRequest(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("file", "offset")
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    file: FileDigest
    offset: int
    def __init__(self, file: _Optional[_Union[FileDigest, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class UploadFileResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

from kev.v1 import frame_pb2 as _frame_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StreamRequest(_message.Message):
    __slots__ = ("request_id", "resume", "grouped")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    GROUPED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    resume: _containers.RepeatedCompositeFieldContainer[_frame_pb2.ResumePoint]
    grouped: bool
    def __init__(self, request_id: _Optional[str] = ..., resume: _Optional[_Iterable[_Union[_frame_pb2.ResumePoint, _Mapping]]] = ..., grouped: _Optional[bool] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("frame", "more")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    frame: _frame_pb2.Frame
    more: _containers.RepeatedCompositeFieldContainer[_frame_pb2.Frame]
    def __init__(self, frame: _Optional[_Union[_frame_pb2.Frame, _Mapping]] = ..., more: _Optional[_Iterable[_Union[_frame_pb2.Frame, _Mapping]]] = ...) -> None: ...

class GetResultsRequest(_message.Message):
    __slots__ = ("request_id", "wait_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    wait_ms: int
    def __init__(self, request_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class GetResultsResponse(_message.Message):
    __slots__ = ("request_id", "results", "complete")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    results: _containers.RepeatedCompositeFieldContainer[_frame_pb2.SlotResult]
    complete: bool
    def __init__(self, request_id: _Optional[str] = ..., results: _Optional[_Iterable[_Union[_frame_pb2.SlotResult, _Mapping]]] = ..., complete: _Optional[bool] = ...) -> None: ...

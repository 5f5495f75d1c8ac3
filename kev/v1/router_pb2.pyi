from kev.v1 import frame_pb2 as _frame_pb2
from kev.v1 import question_pb2 as _question_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: _question_pb2.Batch
    def __init__(self, batch: _Optional[_Union[_question_pb2.Batch, _Mapping]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("request_id", "slots", "refused_slots", "duplicate")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slots: int
    refused_slots: _containers.RepeatedScalarFieldContainer[int]
    duplicate: bool
    def __init__(self, request_id: _Optional[str] = ..., slots: _Optional[int] = ..., refused_slots: _Optional[_Iterable[int]] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("batch", "grouped", "keep_ms", "ask_id", "resume")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    GROUPED_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    batch: _question_pb2.Batch
    grouped: bool
    keep_ms: int
    ask_id: str
    resume: _containers.RepeatedCompositeFieldContainer[_frame_pb2.ResumePoint]
    def __init__(self, batch: _Optional[_Union[_question_pb2.Batch, _Mapping]] = ..., grouped: _Optional[bool] = ..., keep_ms: _Optional[int] = ..., ask_id: _Optional[str] = ..., resume: _Optional[_Iterable[_Union[_frame_pb2.ResumePoint, _Mapping]]] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ("frame", "more")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    frame: _frame_pb2.Frame
    more: _containers.RepeatedCompositeFieldContainer[_frame_pb2.Frame]
    def __init__(self, frame: _Optional[_Union[_frame_pb2.Frame, _Mapping]] = ..., more: _Optional[_Iterable[_Union[_frame_pb2.Frame, _Mapping]]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id", "slots", "ask_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    ask_id: str
    def __init__(self, request_id: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ..., ask_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled_slots",)
    CANCELLED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    cancelled_slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cancelled_slots: _Optional[_Iterable[int]] = ...) -> None: ...

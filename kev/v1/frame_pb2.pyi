from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlotStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOT_STATUS_UNSPECIFIED: _ClassVar[SlotStatus]
    SLOT_STATUS_ANSWERED: _ClassVar[SlotStatus]
    SLOT_STATUS_REFUSED: _ClassVar[SlotStatus]
    SLOT_STATUS_TIMED_OUT: _ClassVar[SlotStatus]
    SLOT_STATUS_CANCELLED: _ClassVar[SlotStatus]
    SLOT_STATUS_FAILED: _ClassVar[SlotStatus]
    SLOT_STATUS_PENDING: _ClassVar[SlotStatus]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_TIMEOUT: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
    FINISH_REASON_REFUSED: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]
SLOT_STATUS_UNSPECIFIED: SlotStatus
SLOT_STATUS_ANSWERED: SlotStatus
SLOT_STATUS_REFUSED: SlotStatus
SLOT_STATUS_TIMED_OUT: SlotStatus
SLOT_STATUS_CANCELLED: SlotStatus
SLOT_STATUS_FAILED: SlotStatus
SLOT_STATUS_PENDING: SlotStatus
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_TIMEOUT: FinishReason
FINISH_REASON_CANCELLED: FinishReason
FINISH_REASON_REFUSED: FinishReason
FINISH_REASON_ERROR: FinishReason

class Audit(_message.Message):
    __slots__ = ("channel", "worker_id", "channel_id", "bucket", "branch", "accepted_ms", "started_ms", "finished_ms", "queued_ms", "elapsed_ms", "prompt_tokens", "completion_tokens", "attempts", "forwards", "isolation", "backend", "variant", "model_digest", "strategy", "home", "placement", "shared_tokens")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FORWARDS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    SHARED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    channel: str
    worker_id: str
    channel_id: int
    bucket: int
    branch: str
    accepted_ms: int
    started_ms: int
    finished_ms: int
    queued_ms: float
    elapsed_ms: float
    prompt_tokens: int
    completion_tokens: int
    attempts: int
    forwards: int
    isolation: str
    backend: str
    variant: str
    model_digest: str
    strategy: str
    home: str
    placement: str
    shared_tokens: int
    def __init__(self, channel: _Optional[str] = ..., worker_id: _Optional[str] = ..., channel_id: _Optional[int] = ..., bucket: _Optional[int] = ..., branch: _Optional[str] = ..., accepted_ms: _Optional[int] = ..., started_ms: _Optional[int] = ..., finished_ms: _Optional[int] = ..., queued_ms: _Optional[float] = ..., elapsed_ms: _Optional[float] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., attempts: _Optional[int] = ..., forwards: _Optional[int] = ..., isolation: _Optional[str] = ..., backend: _Optional[str] = ..., variant: _Optional[str] = ..., model_digest: _Optional[str] = ..., strategy: _Optional[str] = ..., home: _Optional[str] = ..., placement: _Optional[str] = ..., shared_tokens: _Optional[int] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "text", "logprob")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token: int
    text: bytes
    logprob: float
    def __init__(self, token: _Optional[int] = ..., text: _Optional[bytes] = ..., logprob: _Optional[float] = ...) -> None: ...

class ChosenToken(_message.Message):
    __slots__ = ("chosen", "top")
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    chosen: TokenLogprob
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, chosen: _Optional[_Union[TokenLogprob, _Mapping]] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class SlotResult(_message.Message):
    __slots__ = ("request_id", "slot", "id", "status", "finish_reason", "text", "text_length", "text_sha256", "attempt", "reason", "detail", "warnings", "audit", "logprobs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TEXT_SHA256_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slot: int
    id: str
    status: SlotStatus
    finish_reason: FinishReason
    text: str
    text_length: int
    text_sha256: str
    attempt: int
    reason: str
    detail: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    audit: Audit
    logprobs: _containers.RepeatedCompositeFieldContainer[ChosenToken]
    def __init__(self, request_id: _Optional[str] = ..., slot: _Optional[int] = ..., id: _Optional[str] = ..., status: _Optional[_Union[SlotStatus, str]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., text: _Optional[str] = ..., text_length: _Optional[int] = ..., text_sha256: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., audit: _Optional[_Union[Audit, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[ChosenToken, _Mapping]]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("request_id", "slot", "channel", "attempt", "text_offset", "text", "reset", "finish_reason", "status", "result")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slot: int
    channel: str
    attempt: int
    text_offset: int
    text: str
    reset: bool
    finish_reason: FinishReason
    status: SlotStatus
    result: SlotResult
    def __init__(self, request_id: _Optional[str] = ..., slot: _Optional[int] = ..., channel: _Optional[str] = ..., attempt: _Optional[int] = ..., text_offset: _Optional[int] = ..., text: _Optional[str] = ..., reset: _Optional[bool] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., status: _Optional[_Union[SlotStatus, str]] = ..., result: _Optional[_Union[SlotResult, _Mapping]] = ...) -> None: ...

class ResumePoint(_message.Message):
    __slots__ = ("slot", "attempt", "text_offset")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    slot: int
    attempt: int
    text_offset: int
    def __init__(self, slot: _Optional[int] = ..., attempt: _Optional[int] = ..., text_offset: _Optional[int] = ...) -> None: ...

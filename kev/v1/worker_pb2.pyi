from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("worker_id", "state", "channels", "free_channels", "max_parallel_queries", "model", "model_digest", "tokenizer_digest", "backend", "variant", "precision", "max_context", "kv_pages", "kv_pages_free", "forwards", "rows", "levels", "self_test", "version")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    FREE_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLEL_QUERIES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    KV_PAGES_FIELD_NUMBER: _ClassVar[int]
    KV_PAGES_FREE_FIELD_NUMBER: _ClassVar[int]
    FORWARDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    SELF_TEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    state: str
    channels: int
    free_channels: int
    max_parallel_queries: int
    model: str
    model_digest: str
    tokenizer_digest: str
    backend: str
    variant: str
    precision: str
    max_context: int
    kv_pages: int
    kv_pages_free: int
    forwards: int
    rows: int
    levels: _containers.RepeatedScalarFieldContainer[str]
    self_test: str
    version: str
    def __init__(self, worker_id: _Optional[str] = ..., state: _Optional[str] = ..., channels: _Optional[int] = ..., free_channels: _Optional[int] = ..., max_parallel_queries: _Optional[int] = ..., model: _Optional[str] = ..., model_digest: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., backend: _Optional[str] = ..., variant: _Optional[str] = ..., precision: _Optional[str] = ..., max_context: _Optional[int] = ..., kv_pages: _Optional[int] = ..., kv_pages_free: _Optional[int] = ..., forwards: _Optional[int] = ..., rows: _Optional[int] = ..., levels: _Optional[_Iterable[str]] = ..., self_test: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("grace_ms",)
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    grace_ms: int
    def __init__(self, grace_ms: _Optional[int] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("finished", "returned")
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    finished: int
    returned: int
    def __init__(self, finished: _Optional[int] = ..., returned: _Optional[int] = ...) -> None: ...

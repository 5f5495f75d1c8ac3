from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_UNSPECIFIED: _ClassVar[Isolation]
    ISOLATION_STRICT: _ClassVar[Isolation]
    ISOLATION_SHARED: _ClassVar[Isolation]
    ISOLATION_LOOSE: _ClassVar[Isolation]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_EXPRESS: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_BACKGROUND: _ClassVar[Priority]

class ResultMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESULT_MODE_UNSPECIFIED: _ClassVar[ResultMode]
    RESULT_MODE_SLOT_MAP: _ClassVar[ResultMode]
    RESULT_MODE_SEQ_APPEND: _ClassVar[ResultMode]
    RESULT_MODE_PRIORITY: _ClassVar[ResultMode]

class Strategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STRATEGY_UNSPECIFIED: _ClassVar[Strategy]
    STRATEGY_ROUND_ROBIN: _ClassVar[Strategy]
    STRATEGY_CONSISTENT_HASH: _ClassVar[Strategy]
    STRATEGY_SEMANTIC_HASH: _ClassVar[Strategy]
    STRATEGY_LENGTH_AWARE: _ClassVar[Strategy]
ISOLATION_UNSPECIFIED: Isolation
ISOLATION_STRICT: Isolation
ISOLATION_SHARED: Isolation
ISOLATION_LOOSE: Isolation
PRIORITY_UNSPECIFIED: Priority
PRIORITY_EXPRESS: Priority
PRIORITY_NORMAL: Priority
PRIORITY_BACKGROUND: Priority
RESULT_MODE_UNSPECIFIED: ResultMode
RESULT_MODE_SLOT_MAP: ResultMode
RESULT_MODE_SEQ_APPEND: ResultMode
RESULT_MODE_PRIORITY: ResultMode
STRATEGY_UNSPECIFIED: Strategy
STRATEGY_ROUND_ROBIN: Strategy
STRATEGY_CONSISTENT_HASH: Strategy
STRATEGY_SEMANTIC_HASH: Strategy
STRATEGY_LENGTH_AWARE: Strategy

class Message(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "seed", "stop", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    logprobs: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., logprobs: _Optional[int] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("choices", "json_schema", "regex")
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    choices: Choices
    json_schema: str
    regex: str
    def __init__(self, choices: _Optional[_Union[Choices, _Mapping]] = ..., json_schema: _Optional[str] = ..., regex: _Optional[str] = ...) -> None: ...

class Choices(_message.Message):
    __slots__ = ("choices",)
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    choices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, choices: _Optional[_Iterable[str]] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("text", "messages", "id", "max_tokens", "timeout_ms", "routing_key", "priority", "sampling", "truncate", "constraint", "context_pool")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_POOL_FIELD_NUMBER: _ClassVar[int]
    text: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    id: str
    max_tokens: int
    timeout_ms: int
    routing_key: str
    priority: Priority
    sampling: Sampling
    truncate: bool
    constraint: Constraint
    context_pool: str
    def __init__(self, text: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., id: _Optional[str] = ..., max_tokens: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., routing_key: _Optional[str] = ..., priority: _Optional[_Union[Priority, str]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., truncate: _Optional[bool] = ..., constraint: _Optional[_Union[Constraint, _Mapping]] = ..., context_pool: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("questions", "request_id", "isolation", "mode", "max_parallel", "prefix", "strategy")
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    questions: _containers.RepeatedCompositeFieldContainer[Question]
    request_id: str
    isolation: Isolation
    mode: ResultMode
    max_parallel: int
    prefix: str
    strategy: Strategy
    def __init__(self, questions: _Optional[_Iterable[_Union[Question, _Mapping]]] = ..., request_id: _Optional[str] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., mode: _Optional[_Union[ResultMode, str]] = ..., max_parallel: _Optional[int] = ..., prefix: _Optional[str] = ..., strategy: _Optional[_Union[Strategy, str]] = ...) -> None: ...

"""Every setting, typed: what ``kev.yaml`` may say. Defaults work on a laptop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import regex
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kev.domain.ids import is_worker_id
from kev.domain.question import Isolation, ResultMode, Strategy

Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Milliseconds = Annotated[int, Field(ge=1, le=2**31 - 1)]


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535 or any(sign.isspace() for sign in text):
        raise ValueError("must be HOST:PORT with a port of 0 to 65535")
    return text


def _broker(text: str) -> str:
    if not all(re.fullmatch(r"(nats|tls|ws|wss)://[^\s,]+", part) for part in text.split(",")):
        raise ValueError("must be nats://HOST:PORT (or tls://), several with commas between")
    return text


def _collector(text: str) -> str:
    if text and not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", text):
        raise ValueError("must be http://HOST:PORT or https://HOST:PORT, perhaps with a path; empty is off")
    return text


def _regular(text: str) -> str:
    try:
        regex.compile(text)
    except regex.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


Address = Annotated[str, AfterValidator(_address)]


class Mode(StrEnum):
    """Where the tiers run."""

    SINGLE = "single"
    MULTI_GPU = "multi_gpu"
    DISTRIBUTED = "distributed"


class OverflowPolicy(StrEnum):
    """What happens when no channel has room."""

    WAIT = "wait"
    QUEUE = "queue"
    REJECT = "reject"


class Precision(StrEnum):
    """Number format of the weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


class KvLayout(StrEnum):
    """How channels get their KV pages."""

    SPLIT = "split"
    UNIFIED = "unified"
    SHARED_READONLY = "shared_readonly"


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class Section(BaseModel):
    """Base of all sections: frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)


class DeploySettings(Section):
    """``deploy``: where the tiers run."""

    mode: Mode = Mode.SINGLE
    """``single``: one process; ``multi_gpu``: local processes; ``distributed``: services over NATS."""
    devices: Annotated[str, Field(pattern=r"^(auto|(cpu|cuda:\d+)(,(cpu|cuda:\d+))*)$")] = "auto"
    """Under ``multi_gpu`` a worker for each: ``cuda:0,cuda:1``, or ``cpu,cpu``; ``auto`` takes all GPUs."""


class PreBucket(Section):
    """One rule of ``router.pre_buckets``: a type of questions, and its share of the hash buckets.

    It matches a question whose routing text (folded: lower case, no fillers)
    holds one of the keywords, or in which the pattern is found.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
    keywords: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=200)] = ()
    pattern: Annotated[str, Field(max_length=1000), AfterValidator(_regular)] = ""
    share: Annotated[float, Field(gt=0.0, lt=1.0)]

    @model_validator(mode="after")
    def _something(self) -> PreBucket:
        if not self.keywords and not self.pattern:
            raise ValueError("must have keywords, a pattern, or both")
        if any(not word.strip() for word in self.keywords):
            raise ValueError("keywords must not be blank")
        return self


def pre_bucket_widths(rules: Sequence[PreBucket], buckets: int) -> list[int]:
    """How many of the hash buckets each rule owns: its share of them, at least one."""
    return [max(1, int(rule.share * buckets)) for rule in rules]


class RouterSettings(Section):
    """``router``: how questions get channels, and what one batch may ask."""

    listen: Address = "127.0.0.1:50051"
    """Where the router serves gRPC."""
    aggregator: Address = "127.0.0.1:50052"
    """Address of the aggregator whose stream ``Ask`` relays."""
    strategy: Strategy = Strategy.CONSISTENT_HASH
    """How a question gets its hash bucket."""
    hash_buckets: Annotated[int, Field(ge=1, le=65536)] = 64
    """A fixed number; each bucket has a home channel."""
    virtual_nodes: Annotated[int, Field(ge=1, le=1024)] = 64
    """Places of one channel on the ring."""
    load_factor: Annotated[float, Field(ge=1.0, le=100.0)] = 1.25
    """No channel is loaded above this share of the mean."""
    codebook: str = ""
    """File of a codebook for ``semantic_hash``, fitted to the deployment's own questions; empty needs none."""
    pre_buckets: Annotated[tuple[PreBucket, ...], Field(max_length=64)] = ()
    """Rules that give types of questions hash buckets of their own; see routing. The first that matches counts."""
    breaker_depth: Annotated[int, Field(ge=0)] = 8
    """Least questions in a home's queue at which its bucket's breaker may open; 0 turns breakers off."""
    breaker_factor: Annotated[float, Field(ge=1.0, le=100.0)] = 1.5
    """Least depth of that queue in means."""
    breaker_open_ms: Annotated[int, Field(ge=1)] = 2_000
    """How long an open breaker keeps questions from the home."""
    long_tokens: Count = 512
    """A question with so many prompt tokens of its own is long; system prompt and ``max_tokens`` do not count."""
    long_channels: Annotated[int, Field(ge=0, le=1023)] = 0
    """How many of a worker's channels take long questions only, and all of them; 0 makes no difference of length."""
    max_parallel_queries: Count = 32
    """Most channels in one forward."""
    channel_pool_size: Annotated[int, Field(ge=1, le=1024)] = 32
    """Channels of one worker."""
    overflow_policy: OverflowPolicy = OverflowPolicy.WAIT
    """What happens when no channel has room: hold the call until its deadline, use the shared lane, or refuse."""
    max_waiters: Count = 1000
    """Most submits held under ``wait``; the next one is refused."""
    normalize: Literal["off", "light", "full"] = "light"
    """How far a question is cleaned of fillers and repeated punctuation."""
    default_max_tokens: Count = 256
    """Most new tokens, where a question names none."""
    max_timeout_ms: Milliseconds = 600_000
    """Longest time a question may ask for."""
    max_text_chars: Count = 1_000_000
    """Longest question, characters; longer ones are refused before they are tokenised."""

    @model_validator(mode="after")
    def _types(self) -> RouterSettings:
        names = [rule.name for rule in self.pre_buckets]
        if double := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"pre_buckets must have different names, got {double!r} twice")
        owned = sum(pre_bucket_widths(self.pre_buckets, self.hash_buckets))
        if self.pre_buckets and owned >= self.hash_buckets:
            raise ValueError(
                f"pre_buckets must leave a bucket for all other questions: they own {owned} of hash_buckets = "
                f"{self.hash_buckets}"
            )
        return self

    @model_validator(mode="after")
    def _lanes(self) -> RouterSettings:
        if self.long_channels >= self.channel_pool_size:
            raise ValueError(
                f"long_channels must be below channel_pool_size ({self.channel_pool_size}), got {self.long_channels}"
            )
        if self.strategy is Strategy.LENGTH_AWARE and not self.long_channels:
            raise ValueError("strategy length_aware needs long_channels of at least 1")
        return self


class InferenceSettings(Section):
    """``inference``: one worker."""

    worker_id: str = ""
    """Stable over restarts; empty takes the host's name."""
    listen: Address = "127.0.0.1:50061"
    """Where the worker serves gRPC for operators."""
    audit_log: str = ""
    """Folder of the audit log of forwards, a file per worker; empty logs none."""
    audit_log_rate: Annotated[float, Field(ge=0.0001, le=1.0)] = 1.0
    """Share of the forwards that are logged: 1 is all."""
    audit_log_tokens: bool = False
    """Whether token ids are logged, which texts can be read from; with them logits can be checked again."""
    audit_log_logits: bool = False
    """Whether a digest of every logit row is logged."""
    audit_log_mb: Annotated[int, Field(ge=1, le=65536)] = 64
    """Size at which a file is turned over, MiB."""
    audit_log_files: Annotated[int, Field(ge=0, le=1000)] = 8
    """Old files that are kept."""

    @model_validator(mode="after")
    def _name(self) -> InferenceSettings:
        if self.worker_id and not is_worker_id(self.worker_id):
            raise ValueError("worker_id must be lower case letters, digits and dashes, and no shared lane's name")
        return self


class IsolationSettings(Section):
    """``isolation``: what questions may share, and how memory is laid out."""

    level: Isolation = Isolation.STRICT
    """The weakest level served: what questions may share."""
    shared_prefix: bool = True
    """Whether the deployment's own system prompt is computed once for all."""
    kv_cache: KvLayout = KvLayout.SHARED_READONLY
    """``shared_readonly``: pages as needed, full pages of stored context read by all; ``split``: context is copied
    for each channel, so that no page is in two tables; ``unified``: so, and ``max_context`` reserved per channel."""
    context_pages: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Most KV pages of stored context; 0 lets it take what no question needs."""


class ContextSettings(Section):
    """``context``: context pools, the documents that a tenant's questions may read."""

    max_pools: Annotated[int, Field(ge=0, le=1000)] = 32
    """Most pools of one tenant."""
    max_pool_tokens: Annotated[int, Field(ge=0, le=1_048_576)] = 0
    """Most tokens of one pool; 0 takes what ``core.max_context`` leaves."""


LEAST_KV_PAGES = 16
"""The self-test needs some."""


class CoreSettings(Section):
    """``core``: the model and the forward."""

    model_path: str = "default"
    """A ``.gguf`` file, a Hugging Face directory, or ``default`` (SmolLM2-135M-Instruct)."""
    precision: Precision = Precision.FP32
    """Number format of the weights."""
    max_context: Annotated[int, Field(ge=16, le=1_048_576)] = 2048
    """Most positions of one channel, prompt and answer together."""
    backend: Literal["auto", "reference", "native"] = "auto"
    """``native`` where it can be built (CPU), else ``reference``."""
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share one worker's model, heads divided among them; 1 keeps it whole."""
    threads: Annotated[int, Field(ge=0, le=512)] = 0
    """Threads of a forward; 0 takes the machine's cores."""
    system_prompt: str = ""
    """The deployment's own; a chat template's built-in one does not slip in beside it."""
    kv_pages: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Pages of 16 positions in the KV store, at least 16 and enough for one channel; 0 sizes it from channels and
    ``max_context``."""
    row_budget: Annotated[int, Field(ge=1, le=65536)] = 256
    """Most rows in one forward; long prompts go in by chunks."""
    long_row_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Most rows that prompts of the long lane add to a forward, as a share of the other questions' rows in it."""
    window_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """How long a forward waits for more questions; 0 packs what is there."""
    grammar_ms: Annotated[int, Field(ge=50, le=60_000)] = 2_000
    """Processor time that compiling one JSON schema or regular expression may take, milliseconds."""

    @field_validator("kv_pages")
    @classmethod
    def _room(cls, pages: int, info: ValidationInfo) -> int:
        context = info.data.get("max_context")
        least = max(LEAST_KV_PAGES, -(-context // 16)) if context else LEAST_KV_PAGES
        if pages and pages < least:
            raise ValueError(f"must be 0, or at least {least} for a max_context of {context}")
        return pages


class AggregatorSettings(Section):
    """``aggregator``: results."""

    listen: Address = "127.0.0.1:50052"
    """Where the aggregator serves gRPC."""
    mode: ResultMode = ResultMode.SLOT_MAP
    """Order of the results, where a batch names none."""
    timeout_ms: Milliseconds = 60_000
    """A question's time from acceptance to deadline, where it names none."""
    grace_ms: Annotated[int, Field(ge=0, le=60_000)] = 2_000
    """How long after its deadline a slot counts as timed out for readers."""
    reader_buffer: Count = 1024
    """Frames that may wait for one slow reader."""


class BusSection(Section):
    """``bus``: the broker, and the bounds of the queues."""

    url: Annotated[str, AfterValidator(_broker)] = "nats://127.0.0.1:4222"
    """NATS servers with JetStream, with commas between."""
    user: str = ""
    """User of the broker."""
    password: SecretStr = SecretStr("")
    """Password of the broker; better given as ``KEV_BUS_PASSWORD``."""
    queue_bound: Count = 64
    """Most questions in one channel's queue, the running one included."""
    shared_lane_bound: Count = 10_000
    """Most questions in one shared lane."""
    ack_wait_ms: Annotated[int, Field(ge=200, le=3_600_000)] = 10_000
    """A question whose worker shows no progress for so long goes to another."""
    lease_ms: Annotated[int, Field(ge=200, le=3_600_000)] = 5_000
    """A worker that has not beaten for so long is taken for dead."""
    result_ttl_ms: Annotated[int, Field(ge=1000, le=2**40)] = 3_600_000
    """How long requests and outcomes are kept."""
    replicas: Literal[1, 3, 5] = 1
    """Copies of every stream."""


def listed_keys(given: Any) -> dict[str, tuple[SecretStr, ...]] | str:
    """Tenant -> its keys, from a mapping of one key or a list of them; a string stays, as a file's path.

    Raises:
        ValueError: says what is allowed; no key is shown.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, dict):
        raise ValueError("must map tenants to their keys, or name a file that does")
    keys = {}
    for tenant, its in given.items():
        listed = [one.get_secret_value() if isinstance(one, SecretStr) else one for one in _as_list(its)]
        if not isinstance(tenant, str) or not all(isinstance(key, str) for key in listed):
            raise ValueError("must map tenants to a key, or to a list of keys, each a text")
        keys[tenant] = tuple(SecretStr(key) for key in listed)
    return keys


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


class AuthSettings(Section):
    """``auth``: who may call."""

    keys: Annotated[dict[str, tuple[SecretStr, ...]] | str, BeforeValidator(listed_keys)] = {}
    """Tenant -> API key or list of keys (or ``sha256:`` and its hash), or a YAML file of that; empty asks nobody."""


class HttpSettings(Section):
    """``http``: the door for plain HTTP."""

    host: str = "127.0.0.1"
    """Where ``kev serve`` listens."""
    port: Port = 8765
    """Its port; 0 takes a free one."""
    body_timeout_ms: Milliseconds = 60_000
    """How long a request's body may take to arrive."""


class MetricsSettings(Section):
    """``metrics``: Prometheus endpoint of a service; port 0 is off."""

    host: str = "127.0.0.1"
    """Where a service serves ``/metrics``."""
    port: Port = 0
    """Its port; 0 is off. ``kev up`` counts on from it, one port a process."""


class LogSettings(Section):
    """``log``: what goes to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe lines that are written."""
    format: LogFormat = LogFormat.TEXT
    """Lines for people, or one JSON object a line."""


class TraceSettings(Section):
    """``trace``: spans of requests, for a collector of OpenTelemetry. Needs the extra ``trace``."""

    endpoint: Annotated[str, AfterValidator(_collector)] = ""
    """Where spans go, OTLP over HTTP: ``http://HOST:4318``; empty is off."""
    sample: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Share of the traces that begin here; a caller's own trace is followed as it says."""


class Settings(Section):
    """The whole of ``kev.yaml``."""

    deploy: DeploySettings = DeploySettings()
    router: RouterSettings = RouterSettings()
    inference: InferenceSettings = InferenceSettings()
    isolation: IsolationSettings = IsolationSettings()
    context: ContextSettings = ContextSettings()
    core: CoreSettings = CoreSettings()
    aggregator: AggregatorSettings = AggregatorSettings()
    bus: BusSection = BusSection()
    auth: AuthSettings = AuthSettings()
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()

    @model_validator(mode="after")
    def _fit(self) -> Settings:
        longest = max(self.router.max_timeout_ms, self.aggregator.timeout_ms)
        if self.bus.result_ttl_ms <= 2 * (longest + self.bus.ack_wait_ms):
            raise ValueError(
                "bus.result_ttl_ms must be more than 2 x (the longest timeout + bus.ack_wait_ms) = "
                f"{2 * (longest + self.bus.ack_wait_ms)}, got {self.bus.result_ttl_ms}"
            )
        if self.aggregator.timeout_ms > self.router.max_timeout_ms:
            raise ValueError("aggregator.timeout_ms must not be above router.max_timeout_ms")
        return self

"""Every setting, typed: what ``kev.yaml`` may say. Defaults work on a laptop."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from kev.domain.ids import is_worker_id
from kev.domain.question import Isolation, ResultMode

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


Address = Annotated[str, AfterValidator(_address)]


class Mode(StrEnum):
    """Where the tiers run."""

    SINGLE = "single"
    MULTI_GPU = "multi_gpu"
    DISTRIBUTED = "distributed"


class Strategy(StrEnum):
    """How a question gets its bucket."""

    ROUND_ROBIN = "round_robin"
    CONSISTENT_HASH = "consistent_hash"


class OverflowPolicy(StrEnum):
    """What happens when no channel has room."""

    WAIT = "wait"
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


class Section(BaseModel):
    """Base of all sections: frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)


class DeploySettings(Section):
    """``deploy``: where the tiers run."""

    mode: Mode = Mode.SINGLE


class RouterSettings(Section):
    """``router``: how questions get channels, and what one batch may ask."""

    listen: Address = "127.0.0.1:50051"
    aggregator: Address = "127.0.0.1:50052"
    """Address of the aggregator whose stream ``Ask`` relays."""
    strategy: Strategy = Strategy.CONSISTENT_HASH
    hash_buckets: Annotated[int, Field(ge=1, le=65536)] = 64
    virtual_nodes: Annotated[int, Field(ge=1, le=1024)] = 64
    load_factor: Annotated[float, Field(ge=1.0, le=100.0)] = 1.25
    max_parallel_queries: Count = 32
    """Most channels in one forward."""
    channel_pool_size: Annotated[int, Field(ge=1, le=1024)] = 32
    """Channels of one worker."""
    overflow_policy: OverflowPolicy = OverflowPolicy.WAIT
    max_waiters: Count = 1000
    """Most submits held under ``wait``; the next one is refused."""
    normalize: Literal["off", "light", "full"] = "light"
    default_max_tokens: Count = 256
    max_timeout_ms: Milliseconds = 600_000
    max_text_chars: Count = 1_000_000
    """Longest question, characters; longer ones are refused before they are tokenised."""


class InferenceSettings(Section):
    """``inference``: one worker."""

    worker_id: str = ""
    """Stable over restarts; empty takes the host's name."""
    listen: Address = "127.0.0.1:50061"

    @model_validator(mode="after")
    def _name(self) -> InferenceSettings:
        if self.worker_id and not is_worker_id(self.worker_id):
            raise ValueError("worker_id must be lower case letters, digits and dashes, and no shared lane's name")
        return self


class IsolationSettings(Section):
    """``isolation``: what questions may share, and how memory is laid out."""

    level: Isolation = Isolation.STRICT
    shared_prefix: bool = True
    """Whether the deployment's own system prompt is computed once for all."""
    kv_cache: KvLayout = KvLayout.SPLIT


class CoreSettings(Section):
    """``core``: the model and the forward."""

    model_path: str = "default"
    """A ``.gguf`` file, a Hugging Face directory, or ``default`` (SmolLM2-135M-Instruct)."""
    precision: Precision = Precision.FP32
    max_context: Annotated[int, Field(ge=16, le=1_048_576)] = 2048
    """Most positions of one channel, prompt and answer together."""
    backend: Literal["auto", "reference", "native"] = "auto"
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    threads: Annotated[int, Field(ge=0, le=512)] = 0
    """Threads of a forward; 0 takes the machine's cores."""
    system_prompt: str = ""
    kv_pages: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Pages of 16 positions in the KV store; 0 sizes it from channels and ``max_context``."""
    row_budget: Annotated[int, Field(ge=1, le=65536)] = 256
    """Most rows in one forward; long prompts go in by chunks."""
    window_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """How long a forward waits for more questions; 0 packs what is there."""


class AggregatorSettings(Section):
    """``aggregator``: results."""

    listen: Address = "127.0.0.1:50052"
    mode: ResultMode = ResultMode.SLOT_MAP
    timeout_ms: Milliseconds = 60_000
    """A question's time from acceptance to deadline, where it names none."""
    grace_ms: Annotated[int, Field(ge=0, le=60_000)] = 2_000
    reader_buffer: Count = 1024
    """Frames that may wait for one slow reader."""


class BusSection(Section):
    """``bus``: the broker, and the bounds of the queues."""

    url: Annotated[str, AfterValidator(_broker)] = "nats://127.0.0.1:4222"
    user: str = ""
    password: SecretStr = SecretStr("")
    queue_bound: Count = 64
    """Most questions in one channel's queue, the running one included."""
    shared_lane_bound: Count = 10_000
    ack_wait_ms: Annotated[int, Field(ge=200, le=3_600_000)] = 10_000
    lease_ms: Annotated[int, Field(ge=200, le=3_600_000)] = 5_000
    result_ttl_ms: Annotated[int, Field(ge=1000, le=2**40)] = 3_600_000
    replicas: Literal[1, 3, 5] = 1


class HttpSettings(Section):
    """``http``: the door for plain HTTP."""

    host: str = "127.0.0.1"
    port: Port = 8765


class MetricsSettings(Section):
    """``metrics``: Prometheus endpoint of a service; port 0 is off."""

    host: str = "127.0.0.1"
    port: Port = 0


class LogSettings(Section):
    """``log``: what goes to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(Section):
    """The whole of ``kev.yaml``."""

    deploy: DeploySettings = DeploySettings()
    router: RouterSettings = RouterSettings()
    inference: InferenceSettings = InferenceSettings()
    isolation: IsolationSettings = IsolationSettings()
    core: CoreSettings = CoreSettings()
    aggregator: AggregatorSettings = AggregatorSettings()
    bus: BusSection = BusSection()
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()

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

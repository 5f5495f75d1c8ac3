"""Traces: spans of a request's way, by OpenTelemetry. Off unless ``trace.endpoint`` is set.

While it is off nothing of OpenTelemetry is imported, and each call here is
one branch. A span's name in other processes is its *traceparent* (W3C Trace
Context): a caller's comes in gRPC metadata or an HTTP header, a question's in
the headers of its message.

A span that lasts over a generator's ``yield`` must not be the current one, or
two generators of one task would take each other's for their parent: such
spans are begun and ended by hand.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OpenSpan
    from opentelemetry.trace import Tracer

    from kev.config.settings import TraceSettings

    Span: TypeAlias = OpenSpan | None
    """A running span; None while traces are off."""

HEADER = "traceparent"
PATH = "/v1/traces"
EXPORT_S = 3.0
_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: Tracer | None = None


# -- on and off --------------------------------------------------------------------
def set_up(settings: TraceSettings, service: str) -> None:
    """Turns traces on if the settings say so; what is on already stays. The last spans go out when the process ends.

    Raises:
        ConfigError: the packages are missing.
    """
    if not settings.endpoint or _tracer is not None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError:
        from kev.config.source import ConfigError

        raise ConfigError("trace.endpoint: needs more packages: pip install 'kev-serving[trace]'") from None
    named = {"service.name": f"kev-{service}".replace("kev-kev", "kev"), "service.instance.id": socket.gethostname()}
    sampler = ParentBased(TraceIdRatioBased(settings.sample))
    provider = TracerProvider(sampler=sampler, resource=Resource.create(named))
    exporter = OTLPSpanExporter(endpoint=_address(settings.endpoint), timeout=EXPORT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    use(provider)


def use(provider: TracerProvider | None) -> None:
    """Spans go to this provider from now on; None turns traces off."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer("kev")


def _address(endpoint: str) -> str:
    host = endpoint.partition("://")[2].rstrip("/")
    return endpoint if "/" in host else endpoint.rstrip("/") + PATH


def on() -> bool:
    """Whether traces are on."""
    return _tracer is not None


# -- spans -------------------------------------------------------------------------
def begin(name: str, parent: str = "", **facts: Any) -> Span:
    """A span from now on, to be given to ``end``.

    Args:
        parent: Traceparent of another process; without, the current span is the parent.
        facts: Attributes, ``kev.`` in front of their names. Never a question's text.
    """
    if _tracer is None:
        return None
    return _tracer.start_span(name, _context(parent), attributes=_attributes(facts))


def note(span: Span, **facts: Any) -> None:
    """More attributes of a running span."""
    if span is not None:
        span.set_attributes(_attributes(facts))


def end(span: Span, error: BaseException | None = None, **facts: Any) -> None:
    """Ends a span, in error if there was one."""
    if span is None:
        return
    span.set_attributes(_attributes(facts))
    if error is not None:
        _fail(span, error)
    span.end()


@contextmanager
def under(span: Span) -> Iterator[None]:
    """Makes a span the current one. Nothing may ``yield`` inside, see above."""
    if span is None:
        yield
        return
    from opentelemetry import trace

    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield


def span(name: str, parent: str = "", **facts: Any) -> AbstractContextManager[Span]:
    """The current span inside; ended, in error if one comes out, at the end."""
    return _NOTHING if _tracer is None else _running(name, parent, facts)


def past(name: str, parent: str, began_ns: int, ended_ns: int, **facts: Any) -> str:
    """A span that is over (Unix nanoseconds), once its parent is known.

    Returns:
        Its traceparent, for children of it; empty while traces are off.
    """
    if _tracer is None:
        return ""
    made = _tracer.start_span(name, _context(parent), attributes=_attributes(facts), start_time=began_ns)
    made.end(max(began_ns, ended_ns))
    return of(made)


@contextmanager
def _running(name: str, parent: str, facts: Mapping[str, Any]) -> Iterator[Span]:
    made = begin(name, parent, **facts)
    try:
        with under(made):
            yield made
    except BaseException as error:
        end(made, error)
        raise
    end(made)


# -- names -------------------------------------------------------------------------
def of(span: Span) -> str:
    """The traceparent of a span; empty for none."""
    if span is None:
        return ""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def current() -> str:
    """The traceparent of the current span; empty where there is none, or while traces are off."""
    if _tracer is None:
        return ""
    from opentelemetry import trace

    return of(trace.get_current_span())


def metadata(span: Span) -> tuple[tuple[str, str], ...]:
    """The gRPC metadata of a call inside a span. While traces are off here, a trace of the caller's own program goes
    along all the same."""
    name = of(span)
    if not name and (api := sys.modules.get("opentelemetry.trace")) is not None:
        name = of(api.get_current_span())
    return ((HEADER, name),) if name else ()


def parent_in(metadata: Iterable[tuple[str, Any]] | None) -> str:
    """The traceparent in a call's metadata; empty where there is none, or while traces are off."""
    if _tracer is None:
        return ""
    return next((str(value) for key, value in metadata or () if key == HEADER), "")


def ids() -> dict[str, str]:
    """Names of the current span, for the log; empty while traces are off."""
    parts = current().split("-") if _tracer is not None else ()
    return {"trace_id": parts[1], "span_id": parts[2]} if len(parts) == 4 else {}


def now_ns() -> int:
    """Unix nanoseconds."""
    return time.time_ns()


# -- inside ------------------------------------------------------------------------
def _context(parent: str) -> Context | None:
    """The parent's context; a bad name of one counts as none."""
    if not parent:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: parent})


def _attributes(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"kev.{name}": fact for name, fact in facts.items() if fact is not None and fact != ""}


def _fail(span: OpenSpan, error: BaseException) -> None:
    """The kind of the error only: its text may hold what a caller sent."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, type(error).__name__))

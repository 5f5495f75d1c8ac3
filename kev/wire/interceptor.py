"""The one place where a service's exceptions become gRPC statuses."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc

from kev.wire.reading import Unread, reader_of
from kev.wire.status import abort

log = logging.getLogger(__name__)
Handler = Callable[..., Any]
Context = grpc.aio.ServicerContext[Any, Any]
_STATUS_DETAILS = "grpc-status-details-bin"


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Handlers raise; the caller gets the error table's status. Streams may write or yield.

    The status of a call behind this one, raised as ``AioRpcError``, is passed on as it is.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the handler of every call."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler
        if handler.request_streaming:
            return _guarded_stream(handler)
        if handler.response_streaming:
            make, inner = grpc.unary_stream_rpc_method_handler, handler.unary_stream
        else:
            make, inner = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        guarded = _guarded(inner)
        if guarded is None:
            return handler
        return make(guarded, reader_of(handler.request_deserializer), _written(handler.response_serializer))


def _guarded(inner: Handler) -> Handler | None:
    if inspect.isasyncgenfunction(inner):
        return _guarded_generator(inner, _read)
    if not inspect.iscoroutinefunction(inner):
        return None  # reflection answers with a plain function

    async def call(request: Any, context: Context) -> Any:
        try:
            return await inner(await _read(request), context)
        except Exception as error:
            return await _end(context, error)

    return call


def _guarded_stream(handler: Any) -> Any:
    """Reflection is the one that reads a stream."""
    if not inspect.isasyncgenfunction(handler.stream_stream):
        return handler
    return grpc.stream_stream_rpc_method_handler(
        _guarded_generator(handler.stream_stream, _read_all),
        reader_of(handler.request_deserializer),
        _written(handler.response_serializer),
    )


def _guarded_generator(inner: Handler, read: Callable[[Any], Awaitable[Any]]) -> Handler:
    """Written out, not yielded on: when the caller leaves while a write waits,
    the generator is closed at once instead of when it is collected."""

    async def stream(request: Any, context: Context) -> None:
        try:
            async with aclosing(inner(await read(request), context)) as replies:
                async for reply in replies:
                    await context.write(reply)
        except Exception as error:
            await _end(context, error)

    return stream


def _written(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A reply's bytes. A relay has them already."""
    return lambda reply: reply if isinstance(reply, bytes) else serialize(reply)


async def _read(request: Any) -> Any:
    """The request; raises what is wrong with its bytes."""
    return await request.read() if isinstance(request, Unread) else request


async def _read_all(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Each request of a stream when it comes."""
    return (await _read(request) async for request in requests)


async def _end(context: Context, error: Exception) -> None:
    """Ends the call with the error's status, unless that was done or nobody is there to hear it."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if context.done() or isinstance(error, grpc.aio.InternalError):  # the latter: a write that found nobody
        log.debug("the caller had left: %r", error)
        return
    if isinstance(error, grpc.aio.AioRpcError):
        metadata: Any = error.trailing_metadata() or ()  # pairs at run time, whatever the stubs say
        details = tuple((key, value) for key, value in metadata if key == _STATUS_DETAILS)
        await context.abort(error.code(), error.details() or "", details)
    await abort(context, error)

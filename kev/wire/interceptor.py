"""The one place where a service's exceptions become gRPC statuses."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from kev.wire.status import abort

Handler = Callable[..., Any]


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Handlers raise; the caller gets the error table's status. Streams may write or yield."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the handler of every call."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        make = (
            grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
        )
        inner = handler.unary_stream if handler.response_streaming else handler.unary_unary
        return make(_guarded(inner), handler.request_deserializer, handler.response_serializer)


def _guarded(inner: Handler) -> Handler:
    if inspect.isasyncgenfunction(inner):
        return _guarded_generator(inner)
    if not inspect.iscoroutinefunction(inner):
        return inner  # reflection answers with a plain function

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await inner(request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # the table's last line takes the rest
            return await abort(context, error)

    return call


def _guarded_generator(inner: Handler) -> Handler:
    async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        replies = inner(request, context)
        try:
            async for reply in replies:
                yield reply
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # as above
            await abort(context, error)
        finally:
            await replies.aclose()

    return stream

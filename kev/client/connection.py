"""Where a client calls, and as whom: gRPC channels to the router and to the aggregator."""

from __future__ import annotations

import copy
from typing import Any, Self

import grpc

from kev.domain.tenants import checked_key, header_of
from kev.telemetry import traces
from kev.v1 import aggregator_pb2_grpc, context_pb2_grpc, router_pb2_grpc
from kev.wire.options import open_channel


class Connection:
    """The channels of one client. Belongs to one event loop.

    Args:
        router: Address of the router.
        aggregator: Of the aggregator; may be the same.
        api_key: Says which tenant calls; empty for none.
        ca: See ``open_channel``.
    """

    def __init__(self, router: str, aggregator: str, api_key: str, ca: str = "") -> None:
        self._authorization = header_of(checked_key(api_key))
        self._addresses = (router, aggregator)
        self._ca = ca
        self._channels: dict[str, grpc.aio.Channel] = {}

    def calling_as(self, api_key: str) -> Self:
        """The same channels with another key."""
        other = copy.copy(self)
        other._authorization = header_of(checked_key(api_key))
        return other

    async def close(self) -> None:
        """Ends the channels."""
        channels = tuple(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close(None)

    def told(self, span: traces.Span | None = None) -> tuple[tuple[str, str], ...]:
        """What goes along with a call: who calls, and its trace."""
        who = (("authorization", self._authorization),) if self._authorization else ()
        return (*who, *(traces.metadata(span) or ()))

    @property
    def reaches_router(self) -> bool:
        """Whether a channel to the router is open: none was before the first call, and none is after ``close``."""
        return self._addresses[0] in self._channels

    @property
    def two_addresses(self) -> bool:
        """Whether the aggregator has an address of its own."""
        return self._addresses[0] != self._addresses[1]

    @property
    def router(self) -> Any:
        """Stub of the router."""
        return router_pb2_grpc.RouterServiceStub(self._channel(self._addresses[0]))  # type: ignore[no-untyped-call]

    @property
    def contexts(self) -> Any:
        """Stub of the router's calls about context pools."""
        return context_pb2_grpc.ContextServiceStub(self._channel(self._addresses[0]))  # type: ignore[no-untyped-call]

    @property
    def aggregator(self) -> Any:
        """Stub of the aggregator."""
        return aggregator_pb2_grpc.AggregatorServiceStub(self._channel(self._addresses[1]))  # type: ignore[no-untyped-call]

    def _channel(self, address: str) -> grpc.aio.Channel:
        """Opened on first use, because it belongs to the running loop."""
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._ca)
        return self._channels[address]

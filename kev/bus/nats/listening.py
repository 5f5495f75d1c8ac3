"""Subscriptions that outlive connections."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

log = logging.getLogger(__name__)
Hear = Callable[[Msg], Awaitable[None] | None]


class Listening:
    """A running subscription; a ``Subscription`` of the bus. It is in ``registry``
    until it is closed, so that it can be taken over to a new connection."""

    def __init__(self, subject: str, hear: Hear, registry: set[Listening]) -> None:
        self._subject = subject
        self._hear = hear
        self._registry = registry
        self._open = True
        self._subscription: NatsSubscription | None = None

    async def begin(self, client: Client) -> None:
        """Subscribes, on a first or a new connection."""
        self._subscription = await client.subscribe(self._subject, cb=self._run)
        self._registry.add(self)

    async def close(self) -> None:
        """Ends it; no callback runs afterwards."""
        self._open = False
        self._registry.discard(self)
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
        except (nats.errors.Error, OSError):
            log.debug("unsubscribing without a connection: the broker forgets it anyway")

    async def _run(self, message: Msg) -> None:
        """Hands one message over; what the listener raises is logged."""
        if not self._open:
            return
        try:
            answering = self._hear(message)
            if answering is not None:
                await answering
        except Exception:
            log.exception("a listener failed on %s", message.subject)

"""How a request went: its status and how long it took, for whoever stands around the application."""

from __future__ import annotations

import time

from starlette.types import Message, Send

LEFT = "left"
"""Status of a request whose caller left before an answer began."""


class Course:
    """One request from now on. Its ``send`` stands in for the server's.

    Attributes:
        status: Of the answer, ``LEFT`` until one has begun.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._began = time.monotonic()
        self.status = LEFT

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._began

    async def send(self, message: Message) -> None:
        """Passes a message on, and takes note of the status."""
        if message["type"] == "http.response.start":
            self.status = str(message["status"])
        await self._send(message)

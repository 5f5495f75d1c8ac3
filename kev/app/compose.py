"""Opens a backend for a door: the tiers here, or a cluster far away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kev.app.backend import Backend
from kev.config.settings import Settings


@asynccontextmanager
async def opened_backend(settings: Settings, router: str = "") -> AsyncIterator[Backend]:
    """A backend in the running loop, closed at the end.

    Args:
        router: Address of a running cluster; empty loads the model into this process.

    Raises:
        ConfigError, ModelUnusable, NotServed: this process cannot answer; the text says why.
    """
    if router:
        from kev.app.remote import Remote

        remote = Remote(router, settings.tls.ca)
        try:
            yield remote
        finally:
            await remote.close()
        return
    from inference_svc.loading import load_model
    from kev.app.engine.tiers import Tiers

    model = await asyncio.to_thread(load_model, settings)
    try:
        tiers = Tiers(settings, model)
        try:
            await tiers.start()
            yield tiers
        finally:
            await tiers.close()
    finally:
        await asyncio.to_thread(model.backend.close)

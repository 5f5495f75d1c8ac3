"""``kev serve``: the door for plain HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from kev.app.cli import options
from kev.app.cli.running import known_errors
from kev.config.settings import Settings
from kev.wire.process import keep_start, run_service, say_ready, serve_metrics

BACKLOG = 2048


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def serve(
        config: options.Config = None,
        host: Annotated[str | None, typer.Option("--host", help="Where to listen; http.host by default.")] = None,
        port: Annotated[
            int | None, typer.Option("--port", min=0, max=65535, help="http.port by default; 0 takes a free one.")
        ] = None,
        router: options.Router = "",
        sets: options.Sets = None,
    ) -> None:
        """Serves HTTP: POST /v1/query, GET and DELETE /v1/query/{request_id}, /healthz, /docs."""

        async def main() -> None:
            await _serve(options.settings_of(config, sets, service="http"), host, port, router)

        known = known_errors()
        if not router:  # a door to a cluster needs no model, nor the code that runs one
            from inference_svc.loading import ModelUnusable

            known = (*known, ModelUnusable)
        raise typer.Exit(run_service(main, known=known))


async def _serve(settings: Settings, host: str | None, port: int | None, router: str) -> None:
    from kev.app.cli.version import kev_version
    from kev.app.compose import opened_backend
    from kev.app.http.app import create_app
    from kev.app.http.metrics import Counted
    from kev.app.http.server import listen_on, open_door
    from kev.app.http.server import serve as serve_http
    from kev.app.http.telling import Told

    where = host or settings.http.host
    with listen_on(where, settings.http.port if port is None else port) as door:
        async with opened_backend(settings, router) as backend:
            open_door(door, BACKLOG)  # before the ready line
            metrics = serve_metrics(settings.metrics)
            app = create_app(backend, kev_version(), body_timeout_s=settings.http.body_timeout_ms / 1000)
            keep_start()
            say_ready("serve", address=f"{where}:{door.getsockname()[1]}", router=router, metrics=metrics)
            await serve_http(Told(Counted(app)), door)

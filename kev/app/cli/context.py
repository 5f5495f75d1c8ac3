"""``kev context``: documents that chosen questions read, at a running cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from kev.app.batchfile.read import text_of
from kev.app.cli import options
from kev.app.cli.running import run_command
from kev.client import AsyncClient
from kev.domain.context import Context

Router = Annotated[str, typer.Option("--router", metavar="HOST:PORT", help="The router of the cluster.")]
Name = Annotated[str, typer.Argument(help="1 to 128 letters, digits and . _ : -")]
ROUTER = "127.0.0.1:50051"
app = typer.Typer(no_args_is_help=True, help="Documents that chosen questions read, kept at a running cluster.")


def register(main: typer.Typer) -> None:
    """Adds the commands."""
    main.add_typer(app, name="context")


@app.command()
def create(
    name: Name,
    file: Annotated[str, typer.Argument(help="The document, UTF-8; - is standard input.")],
    router: Router = ROUTER,
    ttl_s: Annotated[float | None, typer.Option("--ttl-s", min=0.001, help="How long it is kept, seconds.")] = None,
) -> None:
    """Keeps a document for questions that name it; replaces the one of that name."""

    async def work(client: AsyncClient) -> None:
        made = await client.create_context(name, text_of(file), None if ttl_s is None else int(ttl_s * 1000))
        sys.stdout.write(f"{'replaced' if made.replaced else 'created'} {_line(made)}\n")

    _run(router, work)


@app.command("list")
def list_(router: Router = ROUTER) -> None:
    """The contexts of the caller's tenant, by name."""

    async def work(client: AsyncClient) -> None:
        found = await client.contexts()
        for context in found:
            sys.stdout.write(_line(context) + "\n")
        if not found:
            sys.stderr.write("there are no contexts\n")

    _run(router, work)


@app.command()
def delete(name: Name, router: Router = ROUTER) -> None:
    """Ends a context: no new question may read it."""

    async def work(client: AsyncClient) -> None:
        await client.delete_context(name)

    _run(router, work)


def _run(router: str, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def running() -> int:
        options.settings_of(None, None)
        async with AsyncClient(router) as client:
            await work(client)
        return 0

    run_command(running)


def _line(context: Context) -> str:
    left_s = (context.expires_ms - time.time_ns() // 1_000_000) / 1000
    ends = f", {max(0.0, left_s):.0f} s left" if context.expires_ms else ""
    return f"{context.name}: {context.tokens} tokens{ends}"

"""``kev explain``: why each slot of a request went where it went."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from kev.app.cli import options
from kev.app.cli.plain import plain
from kev.app.cli.running import run_command
from kev.config.settings import Settings
from kev.domain.errors import InvalidArgument
from kev.domain.ids import REQUEST_ID_ALLOWED, is_request_id


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def explain(
        request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="Of a request of a running cluster.")],
        router: Annotated[
            str, typer.Option("--router", metavar="HOST:PORT", help="The cluster; router.listen by default.")
        ] = "",
        slot: Annotated[list[int] | None, typer.Option("--slot", min=0, help="Only this slot; repeatable.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output.")] = False,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Says for each slot: strategy, bucket, home, branch and why, waits, worker and how it ended."""

        async def work() -> int:
            settings = options.settings_of(config, sets)
            if not is_request_id(request_id):
                raise InvalidArgument("REQUEST_ID", REQUEST_ID_ALLOWED)
            return await _explain(settings, router, request_id, frozenset(slot or ()), as_json)

        run_command(work)


async def _explain(settings: Settings, router: str, request_id: str, slots: frozenset[int], as_json: bool) -> int:
    from kev.app.remote import Remote
    from kev.app.routing.explain import record, sentences
    from kev.wire.tls import address_of

    remote = Remote(router or address_of(settings.router.listen, settings.tls), settings.tls.ca)
    try:
        results = await remote.wait(request_id, 0)
    finally:
        await remote.close()
    if wrong := slots - {result.slot for result in results}:
        raise InvalidArgument("--slot", f"must be 0 to {len(results) - 1}, got {min(wrong)}")
    for result in sorted(results, key=lambda one: one.slot):
        if slots and result.slot not in slots:
            continue
        if as_json:
            sys.stdout.write(json.dumps(record(result), ensure_ascii=False) + "\n")
            continue
        label = f" ({plain(result.id)})" if result.id else ""
        sys.stdout.write(f"slot {result.slot}{label}\n")
        sys.stdout.writelines(f"  {plain(line)}\n" for line in sentences(result))
    return 0

"""The command ``kev``."""

from __future__ import annotations

import os
import sys

# gRPC reads it once, when it is imported: else each handshake that fails is a line of its own between ours, here and in
# the services of ``kev up``.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
try:
    import typer

    from kev.app.cli import (
        ask,
        audit,
        buckets,
        context,
        explain,
        models,
        plan,
        route,
        run,
        serve,
        top,
        up,
        verify,
        version,
    )
    from kev.app.cli.running import INTERRUPTED
except KeyboardInterrupt:  # Ctrl-C while Python still reads its modules
    sys.exit(130)

app = typer.Typer(
    name="kev",
    help="Many independent questions in one model forward, each in its own isolated channel.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for module in (ask, audit, buckets, context, explain, models, plan, route, run, serve, top, up, verify, version):
    module.register(app)


def main() -> None:
    """Console entry point."""
    try:
        app()
    except KeyboardInterrupt:  # while the command line was read: the commands say themselves what it ends
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()

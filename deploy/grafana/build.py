"""Writes the dashboards: ``python deploy/grafana/build.py [--check]``. Edit the files beside this one, not the JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from hot_buckets import hot_buckets  # noqa: E402 - these are found beside this file
from one_worker import one_worker  # noqa: E402
from overview import overview  # noqa: E402

DASHBOARDS = {"overview": overview, "hot-buckets": hot_buckets, "one-worker": one_worker}


def main() -> int:
    """Writes the files, or says which are stale."""
    stale = []
    for name, make in DASHBOARDS.items():
        file = HERE / "dashboards" / f"{name}.json"
        text = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv:
            file.write_text(text)
        elif not file.is_file() or file.read_text() != text:
            stale.append(file.name)
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; run python deploy/grafana/build.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""Files of the weights' cache that nobody will read again."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from inference_svc.backends.native.packing import PACKERS
from inference_svc.backends.native.variants import VARIANTS

_PRECISIONS = "|".join(PACKERS)
_VARIANTS = "|".join(variant.name for variant in VARIANTS)
_NAME = re.compile(rf"([0-9a-f]{{32}}-(?:{_PRECISIONS}))-(?:{_VARIANTS})-([1-9][0-9]{{0,8}})\.kev(?:\.lock)?")


def remove_leftovers(path: Path) -> None:
    """Removes what ``path``, about to be written, takes the place of.

    That is older formats of its model and precision, with their locks, and parts of
    itself that were left by a process which was killed. Only the holder of its lock
    may call this: nobody else then writes a part. What is still mapped stays so.
    """
    own = _NAME.fullmatch(path.name)
    part = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")
    with suppress(OSError):
        for other in list(path.parent.iterdir()):
            found = _NAME.fullmatch(other.name)
            older = own and found and found[1] == own[1] and int(found[2]) < int(own[2])
            if older or part.fullmatch(other.name):
                with suppress(OSError):
                    other.unlink()

"""Makes the passwords of a compose deployment: ``passwords.py FOLDER [--renew] [--show USER]``.

Each of the folder's children is a volume that one service alone mounts. What
is there stays, unless ``--renew``; so a second start changes nothing.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

BUS_USERS = ("router", "inference", "aggregator", "operator")
OTHERS = ("grafana",)
USERS = Path(__file__).with_name("users.conf")
"""The broker's users and their permissions."""


def password() -> str:
    """32 random bytes as text. It begins with letters, so that no configuration format takes it for a number."""
    return f"kev{secrets.token_hex(32)}"


def kept(file: Path, renew: bool) -> str:
    """The password in the file, made now if there is none."""
    if not renew and file.is_file() and (text := file.read_text().strip()):
        return text
    text = password()
    write(file, text)
    return text


def write(file: Path, text: str) -> None:
    """Whole or not at all; the volume is mounted by one service only."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.chmod(0o444)
    part.replace(file)


def main() -> None:
    """Makes what is missing, and tells the broker all of its users' passwords."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--renew", action="store_true", help="new passwords; restart all services afterwards")
    parser.add_argument("--show", metavar="USER", choices=(*BUS_USERS, *OTHERS), help="print one and change nothing")
    given = parser.parse_args()
    if given.show:
        sys.stdout.write((given.folder / given.show / "password").read_text() + "\n")
        return
    words = {user: kept(given.folder / user / "password", given.renew) for user in (*BUS_USERS, *OTHERS)}
    lines = [f'{user.upper()}_PASSWORD: "{words[user]}"' for user in BUS_USERS]
    # In one file: the broker looks for its variables in the file that uses them.
    write(given.folder / "nats" / "users.conf", "\n".join([*lines, USERS.read_text()]))


if __name__ == "__main__":
    main()

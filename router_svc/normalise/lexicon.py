"""The router's word lists, read from the data files beside this module."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of one language, folded to lower case.

    Attributes:
        leading: Greetings and hesitations that may go from the front of a prompt.
        keep: First words of a rest that make a greeting part of a name.
        about: Words in a rest that make the greeting what is asked about.
        routing: Phrases that the routing text goes without.
        particle: Characters that the routing text goes without at the end of a clause.
        thanks: Clauses that the routing text goes without, repeated or not.
    """

    leading: frozenset[str]
    keep: tuple[str, ...]
    about: tuple[str, ...]
    routing: tuple[str, ...]
    particle: str
    thanks: tuple[str, ...]


@cache
def lexicon(language: str) -> Lexicon:
    """The lexicon of "en" or "zh"."""
    sections = _sections(files("router_svc.normalise").joinpath(f"lexicon_{language}.txt").read_text("utf-8"))
    return Lexicon(
        leading=frozenset(sections["greeting"] + sections["hesitation"]),
        keep=tuple(sections["keep"]),
        about=tuple(sections["about"]),
        routing=tuple(sorted(sections["routing"], key=len, reverse=True)),
        particle="".join(sections.get("particle", [])),
        thanks=tuple(sorted(sections.get("thanks", []), key=len, reverse=True)),
    )


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    name = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
            sections.setdefault(name, [])
        elif line and not line.startswith("#"):
            sections[name].append(line.casefold())
    return sections

"""One question's two texts: what the model reads and what the router hashes."""

from msgspec import Struct

from router_svc.normalise.clean import clean
from router_svc.normalise.prompt_text import collapse_marks, drop_leading, trim
from router_svc.normalise.routing_text import fold, routing_text

LEVELS = ("off", "light", "full")
"""off: valid text, nothing more. light: also runs of sentence punctuation and white space at the ends. full: also
greetings and hesitations at the front."""


class Normalised(Struct, frozen=True):
    """A question after normalisation.

    Attributes:
        prompt_text: What the model reads.
        routing_text: What the router hashes; it never reaches a model.
        saved: Characters saved by each rule: `invalid`, `marks`, `leading`, `space` (0 where a rule saved nothing).
    """

    prompt_text: str
    routing_text: str
    saved: dict[str, int]

    @property
    def chars_saved(self) -> int:
        """Characters of the question that the model need not read."""
        return sum(self.saved.values())


def normalise(text: str, level: str = "light") -> Normalised:
    """Normalise one question. Doing it twice is the same as doing it once; a question with content keeps some.

    Args:
        text: What the client sent; any string.
        level: One of `LEVELS`.

    Raises:
        ValueError: an unknown level; the text says which are allowed.
    """
    if level not in LEVELS:
        raise ValueError(f"router.normalise: {level!r} is not a level; allowed: {', '.join(LEVELS)}")
    valid = clean(text)
    saved = {"invalid": max(0, len(text) - len(valid)), "marks": 0, "leading": 0, "space": 0}
    if level == "off":
        return Normalised(valid, fold(valid), saved)
    prompt = trim(valid)
    saved["space"] = len(valid) - len(prompt)
    fewer = collapse_marks(prompt)
    saved["marks"] = len(prompt) - len(fewer)
    prompt = fewer
    if level == "full":
        prompt = drop_leading(fewer)
        saved["leading"] = len(fewer) - len(prompt)
    return Normalised(prompt, routing_text(prompt), saved)

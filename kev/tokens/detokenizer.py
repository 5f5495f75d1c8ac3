"""From token ids to text while they come: whole characters only, and stop strings that never show."""

import codecs

from kev.tokens.tokenizer import Tokenizer


class Detokenizer:
    """One answer's text, piece by piece. The pieces, put together, are what `Tokenizer.decode` gives at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes_of = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; "" when it ends inside a character or is a special token.

        Bytes that cannot be part of any character become U+FFFD at once.

        Raises:
            ValueError: no such token.
        """
        return self._decoder.decode(self._bytes_of(token))

    def flush(self) -> str:
        """The end of the text: U+FFFD for a character that was cut off, else "". The object is then new again."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


class StopMatcher:
    """Lets text through up to the first stop string, and nothing of the stop string itself.

    The stop string that is complete first wins; of two that are complete together, the longer one. So the result
    does not depend on how the text is cut into pieces. Text that can still become a stop string is held back, and
    nothing else is.

    Args:
        stops: Stop strings, none of them empty.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        for index, stop in enumerate(stops):
            if not stop:
                raise ValueError(f"stop[{index}]: empty; allowed: a text of at least one character")
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Take more text.

        Returns:
            The text that may go out now, and whether a stop string has been met. After that nothing goes out.
        """
        if self._stopped:
            return "", True
        text = self._held + text
        found = self._first_stop(text)
        if found is not None:
            self._held, self._stopped = "", True
            return text[:found], True
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """The text held back, when no more will come."""
        text, self._held = self._held, ""
        return text

    def _first_stop(self, text: str) -> int | None:
        """Where the first complete stop string begins, or None."""
        places = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(places)[1] if places else None

    def _possible_start(self, text: str) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0

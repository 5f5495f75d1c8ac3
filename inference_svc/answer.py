"""One slot's answer while it grows: token by token into text, up to its end."""

from __future__ import annotations

from inference_svc.rows import Float32Array
from inference_svc.sample import Sampler
from kev.domain.outcome import FinishReason
from kev.domain.question import Sampling
from kev.tokens.detokenizer import Detokenizer, StopMatcher
from kev.tokens.tokenizer import Tokenizer


class Answer:
    """Chooses tokens and turns them into text.

    Attributes:
        text: What has been let out so far: whole characters, nothing that can
            still become a stop string.
        finish: Why the text ends, None while it goes on.
        tokens: Tokens chosen so far, the end token included.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(self, tokenizer: Tokenizer, sampling: Sampling, seed: int) -> None:
        self._sampler = Sampler(sampling, seed)
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(sampling.stop)
        self._eos = tokenizer.eos_ids
        self._vocab = tokenizer.vocab_size
        self._parts: list[str] = []
        self.finish: FinishReason | None = None
        self.tokens = 0

    @property
    def text(self) -> str:
        """The whole text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def choose(self, logits: Float32Array) -> int:
        """The next token of a logit row, float32 ``[vocab]``.

        Raises:
            NonFiniteLogits: a logit is NaN or infinite.
        """
        token = self._sampler.pick(logits[: self._vocab], self.tokens)
        self.tokens += 1
        return token

    def add(self, token: int, last: bool) -> str:
        """The text that this token lets out; sets ``finish`` when the answer ends with it.

        Args:
            last: No further token may follow.
        """
        if token in self._eos:
            return self.end(FinishReason.STOP)
        piece, stopped = self._stops.push(self._detokenizer.push(token))
        self._parts.append(piece)
        if stopped:
            self.finish = FinishReason.STOP
        elif last:
            return piece + self.end(FinishReason.LENGTH)
        return piece

    def end(self, finish: FinishReason) -> str:
        """Ends the answer; returns the text that had been held back."""
        piece, stopped = self._stops.push(self._detokenizer.flush())
        if not stopped:
            piece += self._stops.flush()
        self._parts.append(piece)
        self.finish = finish
        return piece

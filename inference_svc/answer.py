"""One slot's answer while it grows: token by token into text, up to its end."""

from __future__ import annotations

import numpy as np

from inference_svc.grammars.port import Grammar
from inference_svc.logprobs import chosen_token
from inference_svc.penalties import Penalties
from inference_svc.rows import Float32Array, Int32Array
from inference_svc.sample import Sampler, check_finite
from kev.domain.outcome import ChosenToken, FinishReason
from kev.domain.question import Sampling
from kev.tokens.detokenizer import Detokenizer, StopMatcher
from kev.tokens.tokenizer import Tokenizer

NO_TOKENS: Int32Array = np.empty(0, dtype=np.int32)


class Answer:
    """Chooses tokens and turns them into text.

    The order of things for each token: the model's logits are checked, then
    changed by penalties and bias, then cut down to what the constraint allows,
    then sampled. Log probabilities are of the row as the model gave it.

    Args:
        seed: Of the slot's random stream.
        prompt: Its token ids, int32; the repetition penalty looks at them.
        grammar: What the answer may be; it ends as soon as that allows nothing more.

    Attributes:
        text: What has been let out so far: whole characters, nothing that can
            still become a stop string.
        finish: Why the text ends, None while it goes on.
        tokens: Tokens chosen so far, the end token included.
        logprobs: One record per token, if the question asks for them.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sampling: Sampling,
        seed: int,
        prompt: Int32Array = NO_TOKENS,
        grammar: Grammar | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._sampler = Sampler(sampling, seed)
        self._penalties = Penalties(sampling, prompt, tokenizer.vocab_size) if Penalties.wanted(sampling) else None
        self._grammar = grammar
        self._top = sampling.logprobs
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(sampling.stop)
        self._eos = tokenizer.eos_ids
        self._vocab = tokenizer.vocab_size
        self._parts: list[str] = []
        self.finish: FinishReason | None = None
        self.tokens = 0
        self.logprobs: list[ChosenToken] = []

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
            GrammarFailed: the constraint became too hard to follow.
        """
        row = logits[: self._vocab]
        token = self._sampler.pick(row, self.tokens) if self._free else self._constrained(row)
        if self._top is not None:
            self.logprobs.append(chosen_token(self._tokenizer, row, token, self._top))
        if self._penalties is not None:
            self._penalties.add(token)
        self.tokens += 1
        return token

    @property
    def _free(self) -> bool:
        """Whether tokens are chosen from the model's row as it is: the fast way."""
        return self._penalties is None and self._grammar is None

    def _constrained(self, row: Float32Array) -> int:
        """Chooses from the changed row, among the ids that the constraint allows."""
        check_finite(row, self.tokens)
        if self._penalties is not None:
            row = self._penalties.applied(row)
        if self._grammar is None:
            return self._sampler.pick(row, self.tokens)
        ids = self._grammar.allowed()
        return int(ids[self._sampler.pick(row[ids], self.tokens)])

    def add(self, token: int, last: bool) -> str:
        """The text that this token lets out; sets ``finish`` when the answer ends with it.

        Args:
            last: No further token may follow.
        """
        complete = self._grammar is not None and self._grammar.take(token)
        if token in self._eos:
            return self.end(FinishReason.STOP)
        piece, stopped = self._stops.push(self._detokenizer.push(token))
        self._parts.append(piece)
        if stopped:
            self.finish = FinishReason.STOP
        elif complete:
            return piece + self.end(FinishReason.STOP)
        elif last:
            return piece + self.end(FinishReason.LENGTH)
        return piece

    def end(self, finish: FinishReason) -> str:
        """Ends the answer; returns the text that had been held back."""
        piece, stopped = self._stops.push(self._detokenizer.flush())
        if not stopped:
            piece += self._stops.flush()
        self._parts.append(piece)
        # The end of a character that was cut off may have completed a stop string.
        self.finish = FinishReason.STOP if stopped and finish is FinishReason.LENGTH else finish
        return piece

"""A question on its way to a worker: cleaned, rendered, tokenised, within budget, with a bucket.

This is the router's heavy work. It runs in threads, a few questions at a
time, so that the event loop stays live and a long batch does not hold up a
short one.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter

from msgspec import Struct

from kev.bus.messages import PoolInfo, PoolRef
from kev.config.settings import Settings
from kev.config.source import ConfigError
from kev.domain.errors import InvalidArgument
from kev.domain.question import Question
from kev.tokens.chat import ChatFormat, ChatTemplateError, Prompt
from kev.tokens.tokenizer import Tokenizer
from router_svc import budget, savings
from router_svc.admission import Limits, Refusal, chars_of, check_question
from router_svc.around import ALONE, Around
from router_svc.assign import NO_BUCKET
from router_svc.longest import Longest
from router_svc.normalise import clean, has_content, normalise
from router_svc.strategies import Bucketing

_CHUNK_CHARS = 8_000
"""About so many characters are prepared in one go."""
_SWITCH_S = 0.001
_THREADS, _AT_ONCE = 4, 2
"""Threads, and how many of them one batch may have."""


class Ready(Struct, frozen=True):
    """A question that may be queued.

    Attributes:
        prompt: Token ids, little-endian int32.
        prefix_tokens: Leading tokens that are the deployment's system prompt.
        max_tokens: Most tokens of the answer.
        bucket: Hash bucket, or -1.
        pool: The context pool that stands behind the first ``prefix_tokens``; its tokens are not in ``prompt``.
        batch_prefix_tokens: Tokens of the batch's prefix, which stand behind those (and the pool).
        long: Whether it belongs to the long channels.
    """

    prompt: bytes
    prefix_tokens: int
    max_tokens: int
    bucket: int = NO_BUCKET
    long: bool = False
    warnings: tuple[str, ...] = ()
    pool: PoolRef | None = None
    batch_prefix_tokens: int = 0


class Preparer:
    """Prepares questions in its own threads. Close it.

    Raises:
        ConfigError: the model's chat template cannot be used, or the system prompt leaves no room for a question.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer, limits: Limits, bucketing: Bucketing) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._limits = limits
        self._bucketing = bucketing
        self._longest = Longest(settings.core.max_context, tokenizer.longest_piece)
        self._per_thread = threading.local()
        # The event loop waits for a thread that computes no longer than this, not for Python's usual 5 ms.
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))
        # One chat format now: a template that cannot be used stops the router at its start.
        self._per_thread.chat = _first_chat(settings, tokenizer)
        self._threads = ThreadPoolExecutor(_THREADS, "prepare")

    async def context(self, field: str, text: str, behind_pool: bool = False) -> tuple[int, ...]:
        """Ids of a text that many questions read.

        Args:
            field: Its name in errors.
            behind_pool: Whether a context pool stands before it.

        Raises:
            InvalidArgument: it has no content, leaves no room for a question, or the model's template has no
                place for it.
        """
        work = partial(self._context, field, text, behind_pool)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def prepare_all(
        self, questions: Sequence[Question], bucketing: Bucketing | None = None, around: Around = ALONE
    ) -> list[Ready | Refusal]:
        """One result per question, in order. A long batch has some of the threads at a time: a short one need
        not wait for its end.

        Args:
            bucketing: The batch's strategy; None takes the deployment's.
            around: What they read besides themselves.
        """
        loop = asyncio.get_running_loop()
        turns = asyncio.Semaphore(_AT_ONCE)

        async def prepared(part: list[Question]) -> list[Ready | Refusal]:
            async with turns:
                return await loop.run_in_executor(self._threads, self._prepare_some, part, bucketing, around)

        parts = await asyncio.gather(*(prepared(part) for part in _chunks(questions)))
        return [result for part in parts for result in part]

    def close(self) -> None:
        """Ends the threads; what was not begun is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def prepare(
        self, question: Question, bucketing: Bucketing | None = None, around: Around = ALONE
    ) -> Ready | Refusal:
        """Prepares one question in the calling thread; arguments as ``prepare_all``."""
        refusal = check_question(question, self._limits)
        if refusal is not None:
            return refusal
        found = around.of(question)
        if isinstance(found, Refusal):
            return found
        pool, lead = found
        messages, routing_text, readable = self._texts(question)
        warnings = self._shortened(question, messages)
        if isinstance(warnings, Refusal):
            return warnings
        try:
            prompt = self._chat().render_behind(messages, lead, place=question.truncate)
        except ValueError as error:  # the model's template does not take these messages
            return Refusal("invalid", str(error))
        plan = self._planned(question, prompt, pool, readable)
        if isinstance(plan, budget.Refusal):
            return Refusal(plan.reason.value, plan.text, plan.prompt_tokens)
        if plan.keep_question is not None:
            prompt = self._chat().cut(prompt, plan.keep_question)
        return Ready(
            prompt=struct.pack(f"<{len(prompt.tokens)}i", *prompt.tokens),
            prefix_tokens=prompt.prefix_tokens,
            max_tokens=plan.max_tokens,
            bucket=(bucketing or self._bucketing).bucket(question.routing_key, routing_text),
            long=self._is_long(prompt),
            warnings=warnings + plan.warnings,
            pool=pool.ref if pool else None,
            batch_prefix_tokens=prompt.context_tokens,
        )

    def _prepare_some(
        self, questions: Sequence[Question], bucketing: Bucketing | None, around: Around
    ) -> list[Ready | Refusal]:
        return [self.prepare(question, bucketing, around) for question in questions]

    def _context(self, field: str, text: str, behind_pool: bool) -> tuple[int, ...]:
        cleaned = clean(text)
        if not has_content(cleaned):
            raise InvalidArgument(field, "holds nothing to read")
        try:
            ids = self._chat().context(cleaned, behind_pool)
        except ValueError as error:
            raise InvalidArgument(field, str(error)) from None
        most = self._settings.core.max_context - len(self._chat().prefix) - 2
        if len(ids) > most:
            raise InvalidArgument(
                field, f"has {len(ids)} tokens; at most {most} leave room for a question and its answer"
            )
        return ids

    def _texts(self, question: Question) -> tuple[list[dict[str, str]], str, bool]:
        """The messages as the model reads them, the text to hash, and whether the question has content.

        The last user message is the question and is normalised; what stands before it is only made valid.
        """
        turns = [(message.role, message.content) for message in question.messages] or [("user", question.text)]
        last = max(index for index, (role, _) in enumerate(turns) if role == "user")
        text = turns[last][1]
        asked = normalise(text, self._settings.router.normalize)
        savings.count(text, asked, self._tokenizer)
        messages = [
            {"role": role, "content": asked.prompt_text if index == last else clean(content)}
            for index, (role, content) in enumerate(turns)
        ]
        return messages, asked.routing_text, has_content(asked.prompt_text)

    def _shortened(self, question: Question, messages: list[dict[str, str]]) -> tuple[str, ...] | Refusal:
        """Refuses what is far too long before it is tokenised, or cuts the question in ``messages`` if that was asked
        for; the warnings."""
        least = self._longest.least_tokens([message["content"] for message in messages])
        if not least:
            return ()
        asked = max((message for message in enumerate(messages) if message[1]["role"] == "user"), key=itemgetter(0))[1]
        others = [message["content"] for message in messages if message is not asked]
        if not question.truncate or self._longest.least_tokens(others):
            most = self._settings.core.max_context
            detail = f"the prompt has at least {least} tokens; allowed: {most - 1}, as max_context is {most}"
            return Refusal("too_long", detail, least)
        chars = len(asked["content"])
        asked["content"] = self._longest.first(asked["content"])
        kept = len(asked["content"])
        return (f"length_warning: of the question's {chars} characters only the first {kept} were looked at",)

    def _planned(
        self, question: Question, prompt: Prompt, pool: PoolInfo | None, readable: bool
    ) -> budget.Budget | budget.Refusal:
        return budget.plan(
            prompt_tokens=len(prompt.tokens) + (pool.tokens if pool else 0),
            question_tokens=prompt.question[1] - prompt.question[0],
            has_content=readable,
            requested=question.max_tokens,
            default_max_tokens=self._settings.router.default_max_tokens,
            max_context=self._settings.core.max_context,
            truncate=question.truncate,
        )

    def _is_long(self, prompt: Prompt) -> bool:
        """By what has to be computed for this question alone. Not by ``max_tokens``: an answer adds one row to a
        forward however long it gets, and most end long before their limit."""
        route = self._settings.router
        shared = prompt.prefix_tokens if self._settings.isolation.shared_prefix else 0
        return route.long_channels > 0 and len(prompt.tokens) - shared >= route.long_tokens

    def _chat(self) -> ChatFormat:
        """This thread's chat format: one object must not be used by two threads."""
        chat: ChatFormat | None = getattr(self._per_thread, "chat", None)
        if chat is None:
            chat = self._per_thread.chat = ChatFormat(self._tokenizer, self._settings.core.system_prompt)
        return chat


def limits_of(settings: Settings, tokenizer: Tokenizer) -> Limits:
    """What a deployment with this model allows."""
    route = settings.router
    return Limits(
        settings.isolation.level,
        route.max_timeout_ms,
        route.max_text_chars,
        route.default_max_tokens,
        tokenizer.vocab_size,
    )


def _first_chat(settings: Settings, tokenizer: Tokenizer) -> ChatFormat:
    core = settings.core
    try:
        chat = ChatFormat(tokenizer, core.system_prompt)
    except ChatTemplateError as error:
        raise ConfigError(f"core.model_path: {error}") from error
    if len(chat.prefix) + 2 > core.max_context:
        raise ConfigError(
            f"core.system_prompt: its {len(chat.prefix)} tokens leave no room for a question; "
            f"core.max_context is {core.max_context}"
        )
    return chat


def _chunks(questions: Sequence[Question]) -> list[list[Question]]:
    """The questions in order, cut into runs of some thousand characters."""
    chunks: list[list[Question]] = [[]]
    size = 0
    for question in questions:
        chars = chars_of(question)
        if chunks[-1] and size + chars > _CHUNK_CHARS:
            chunks.append([])
            size = 0
        chunks[-1].append(question)
        size += chars
    return chunks

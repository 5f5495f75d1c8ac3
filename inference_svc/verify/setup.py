"""Makes a proof ready: loads the model of the settings with pages enough, and turns questions into prompts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.port import Backend
from inference_svc.loading import LoadedModel, load_model
from inference_svc.verify.claims import RunWith
from inference_svc.verify.faults import native_with_defects
from inference_svc.verify.proof import FEWEST, PREFIX_TOKENS, Proof, Size
from inference_svc.verify.questions import PREFIX_TEXT, QUESTIONS
from inference_svc.verify.report import Check
from kev.config.settings import Settings
from kev.tokens.chat import ChatFormat
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer

log = logging.getLogger(__name__)
Conversation = Sequence[Mapping[str, str]]
"""Messages with ``role`` and ``content``."""


class CannotVerify(ValueError):
    """The questions do not fit the model, or the model is too small to try the claims on; the text says which."""


@contextmanager
def prepared(
    settings: Settings, conversations: Sequence[Conversation], size: Size, say: Callable[[str], None]
) -> Iterator[Proof]:
    """The proof of a deployment's model, in its precision and on its backend.

    Args:
        conversations: The user's questions; only ``size.questions`` of them are used. Where there are fewer than
            the claims need, built-in ones keep them company; none at all takes the built-in ones.
        say: Told what is being done.

    Raises:
        CannotVerify: a question does not fit.
        ModelNotFound, ModelUnusable: there is no model, or it cannot be loaded as the settings want it.
    """
    path = resolve_model(settings.core.model_path)
    say("loading the model")
    tokenizer = Tokenizer.load(path)
    prompts = prompts_of(ChatFormat(tokenizer, settings.core.system_prompt), conversations, size.questions)
    longest = max(len(prompt) for prompt in prompts)
    pages = size.pages(longest)
    model = _loaded(settings, pages)
    try:
        _check_fit(prompts, size, min(settings.core.max_context, model.backend.max_context))
        yield Proof(
            backend=model.backend,
            tokenizer=tokenizer,
            prompts=prompts,
            prefix=_prefix(tokenizer),
            size=size,
            run_with=_other_threads(settings, model.backend),
            broken=lambda: _broken(model, settings, pages),
            say=say,
        )
    finally:
        model.backend.close()


def prompts_of(chat: ChatFormat, conversations: Sequence[Conversation], most: int) -> list[list[int]]:
    """Token ids of the first ``most`` questions, with built-in ones added if there are too few.

    Raises:
        CannotVerify: a question is not one that the model's chat template takes.
    """
    prompts = []
    for number, messages in enumerate(islice(conversations, most)):
        try:
            prompts.append(chat.render(messages).tokens)
        except ValueError as error:
            raise CannotVerify(f"question {number + 1}: {error}") from error
    missing = (FEWEST if prompts else most) - len(prompts)
    built_in = (chat.render([{"role": "user", "content": text}]).tokens for text in QUESTIONS)
    return prompts + list(islice(built_in, max(missing, 0)))


def _loaded(settings: Settings, pages: int, threads: int | None = None) -> LoadedModel:
    core = settings.core.model_copy(update={"kv_pages": pages, "threads": threads or settings.core.threads})
    return load_model(settings.model_copy(update={"core": core}))


def _check_fit(prompts: Sequence[Sequence[int]], size: Size, context: int) -> None:
    least = size.positions(0)
    if least > context:
        raise CannotVerify(f"core.max_context: verifying needs channels of {least} positions; this one has {context}")
    for number, prompt in enumerate(prompts):
        if len(prompt) + size.steps > context:
            raise CannotVerify(
                f"question {number + 1}: {len(prompt)} tokens; with an answer of {size.steps} they do not fit "
                f"a channel of {context} positions"
            )


def _prefix(tokenizer: Tokenizer) -> list[int]:
    tokens = tokenizer.encode_text(PREFIX_TEXT)
    while len(tokens) < PREFIX_TOKENS:
        tokens += tokens
    return tokens[:PREFIX_TOKENS]


def _other_threads(settings: Settings, backend: Backend) -> RunWith:
    """Torch's threads are the process's and can be changed; a native backend has its own, so another one is loaded."""

    def in_torch(count: int, use: Callable[[Backend], Check]) -> Check:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            return use(backend)
        finally:
            torch.set_num_threads(before)

    def loaded(count: int, use: Callable[[Backend], Check]) -> Check:
        other = _loaded(settings, backend.pages, count).backend
        try:
            return use(other)
        finally:
            other.close()

    return in_torch if backend.name == "reference" else loaded


def _broken(model: LoadedModel, settings: Settings, pages: int) -> Backend | None:
    """Kernels with a fault built in, where the backend is native and there is a compiler."""
    if model.backend.name != "native":
        return None
    try:
        return native_with_defects(model.path, settings.core.precision.value, pages)
    except NativeUnavailable as reason:
        log.info("no kernels with faults: %s", reason)
        return None

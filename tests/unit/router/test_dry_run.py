"""A dry run says what the router would do."""

from __future__ import annotations

from router_lab import batch_of, settings_with, taken_from

from kev.bus.memory import MemoryBus
from kev.bus.messages import Lane
from kev.domain.question import Question
from kev.tokens.tokenizer import Tokenizer
from router_svc.dry_run import DryRun


async def test_it_agrees_with_the_router(bus: MemoryBus, start, tokenizer: Tokenizer) -> None:  # type: ignore[no-untyped-def]
    dry = DryRun(settings_with(), tokenizer, [Lane("w1", 0), Lane("w1", 1)])
    told = dry.route(Question(text="  Why is the sky blue???  "))
    router = await start(bus)
    await router.submit(batch_of("  Why is the sky blue???  "))
    (question,) = await taken_from(bus)
    assert (told.bucket, told.home, told.tokens) == (question.bucket, str(question.lane), len(question.tokens()))
    assert told.prompt_text == "Why is the sky blue?"
    assert told.saved == 6
    dry.close()


def test_it_says_why_a_question_would_be_refused(tokenizer: Tokenizer) -> None:
    dry = DryRun(settings_with(), tokenizer)
    told = [dry.route(Question(text=text)) for text in ("", "word " * 3000, "Why?")]
    assert [item.reason for item in told] == ["empty", "too_long", ""]
    assert told[1].tokens > 3000
    assert told[2].home == ""  # no channels were given
    dry.close()


def test_it_says_which_lane_and_which_type(tokenizer: Tokenizer) -> None:
    rules = [{"name": "refunds", "keywords": ["refund"], "share": 0.1}]
    settings = settings_with(router__long_channels=1, router__long_tokens=80, router__pre_buckets=rules)
    dry = DryRun(settings, tokenizer, [Lane("w1", 0), Lane("w1", 1, long=True)])
    short, long = (dry.route(Question(text=text)) for text in ("Where is my refund?", "word " * 100))
    assert (short.long, short.type, short.home, short.bucket < 6) == (False, "refunds", "w1/0", True)
    assert (long.long, long.type, long.home, long.bucket >= 6) == (True, "", "w1/1", True)
    dry.close()

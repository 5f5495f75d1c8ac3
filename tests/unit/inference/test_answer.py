"""One answer: the order of what happens to a row, its log probabilities, and where a constraint ends it."""

from __future__ import annotations

import numpy as np
import pytest
from inference_fakes import EOS, VOCAB, FakeTokenizer, letters, logits_of

from inference_svc.answer import Answer
from inference_svc.grammars.choices import ChoiceList, Pieces
from inference_svc.sample import NonFiniteLogits
from kev.domain.outcome import ChosenToken, FinishReason
from kev.domain.question import Sampling

TOKENIZER = FakeTokenizer()
PIECES = Pieces(TOKENIZER)  # type: ignore[arg-type]
PROMPT = np.array([9, 11, 9], np.int32)


def _answer(sampling: Sampling, choices: tuple[str, ...] = (), seed: int = 5, most: int = 12) -> Answer:
    grammar = ChoiceList(PIECES, choices).begin() if choices else None
    answer = Answer(TOKENIZER, sampling, seed, PROMPT, grammar)  # type: ignore[arg-type]
    context = PROMPT.tolist()
    while answer.finish is None:
        context.append(answer.choose(logits_of(context)))
        answer.add(context[-1], last=len(context) == len(PROMPT) + most)
    return answer


def _log_softmax(row: np.ndarray) -> np.ndarray:
    exact = row.astype(np.float64)
    return np.asarray(exact - np.log(np.exp(exact - exact.max()).sum()) - exact.max())


@pytest.mark.parametrize("choices", [(), ("ABBA", "CAB", "Q")])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.1, top_k=9), Sampling(repetition_penalty=1.7, logit_bias={12: 8.0})],
)
def test_log_probabilities_are_the_models_own(sampling: Sampling, choices: tuple[str, ...]) -> None:
    told = _answer(Sampling(**{**_fields(sampling), "logprobs": 3}), choices)
    plain = _answer(sampling, choices)
    assert (told.text, told.tokens, plain.logprobs) == (plain.text, plain.tokens, [])
    assert len(told.logprobs) == told.tokens
    context = PROMPT.tolist()
    for one in told.logprobs:
        row = logits_of(context)
        _check(one, _log_softmax(row), np.argsort(-row, kind="stable")[:3].tolist())
        context.append(one.chosen.token)


def _fields(sampling: Sampling) -> dict[str, object]:
    return {name: getattr(sampling, name) for name in sampling.__struct_fields__}


def _check(one: ChosenToken, exact: np.ndarray, likeliest: list[int]) -> None:
    assert [other.token for other in one.top] == likeliest
    for record in (one.chosen, *one.top):
        assert record.logprob == pytest.approx(exact[record.token], abs=1e-9)
        assert record.text == TOKENIZER.token_bytes(record.token)


def test_none_tells_nothing_and_0_tells_of_the_chosen_tokens() -> None:
    assert _answer(Sampling(logprobs=0)).logprobs[0].top == ()
    assert _answer(Sampling()).logprobs == []


def test_a_bias_can_force_and_forbid() -> None:
    forced = _answer(Sampling(logit_bias={20: 100.0}), most=3)
    assert forced.text == letters([20] * 3)
    first = letters(np.argsort(-logits_of(PROMPT.tolist()))[:1].tolist())
    forbidden = _answer(Sampling(logit_bias={ord(first) - ord("A"): -100.0}), most=1)
    assert forbidden.text != first


def test_the_constraint_comes_after_the_bias() -> None:
    assert _answer(Sampling(logit_bias={20: 100.0}), ("AB", "CD")).text in ("AB", "CD")


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_an_answer_ends_when_its_constraint_is_complete(temperature: float) -> None:
    found = {_answer(Sampling(temperature=temperature), ("AB", "ABC", "Q"), seed).text for seed in range(30)}
    assert found <= {"AB", "ABC", "Q"}
    one = _answer(Sampling(), ("ABCD",))
    assert (one.text, one.finish, one.tokens) == ("ABCD", FinishReason.STOP, 4)


def test_max_tokens_may_end_a_constrained_answer_early() -> None:
    short = _answer(Sampling(), ("ABCD",), most=2)
    assert (short.text, short.finish) == ("AB", FinishReason.LENGTH)
    whole = _answer(Sampling(), ("ABCD",), most=4)
    assert (whole.text, whole.finish) == ("ABCD", FinishReason.STOP)


def test_the_end_token_ends_a_choice_that_goes_on() -> None:
    answer = _answer(Sampling(logit_bias={EOS: 100.0}), ("A", "AB"))
    assert (answer.text, answer.finish, answer.tokens) == ("A", FinishReason.STOP, 2)


def test_a_stop_string_that_the_cut_off_character_completes_is_a_stop() -> None:
    class Halves(FakeTokenizer):
        def token_bytes(self, token: int) -> bytes:
            return b"a\xf0\x9f"

    answer = Answer(Halves(), Sampling(stop=("a\ufffd",)), 5)  # type: ignore[arg-type]
    answer.add(5, last=True)
    assert (answer.text, answer.finish) == ("", FinishReason.STOP)
    answer = Answer(Halves(), Sampling(stop=("b\ufffd",)), 5)  # type: ignore[arg-type]
    answer.add(5, last=True)
    assert (answer.text, answer.finish) == ("a\ufffd", FinishReason.LENGTH)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_broken_row_fails_also_where_it_would_be_masked(bad: float) -> None:
    grammar = ChoiceList(PIECES, ["AB"]).begin()
    answer = Answer(TOKENIZER, Sampling(), 1, PROMPT, grammar)  # type: ignore[arg-type]
    row = logits_of([1])
    row[VOCAB - 1] = bad
    with pytest.raises(NonFiniteLogits):
        answer.choose(row)

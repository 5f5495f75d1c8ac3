"""The text for hashing: the same for questions that differ only in manners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_svc.normalise import normalise


def routed(text: str) -> str:
    return normalise(text).routing_text


@pytest.mark.parametrize(
    "variants",
    [
        ["怎么退款", "请问怎么退款啊？？？", "你好，请问怎么退款呀", "那个……怎么退款呢！", "怎么退款，谢谢谢谢"],
        ["投诉", "我要投诉！！！！！！！！"],
        ["查一下快递到哪里了", "麻烦帮我查一下快递到哪里了，谢谢谢谢谢谢"],
        ["remove my account", "Can you please remove my account?", "Hi there! Remove my account, please. Thanks!"],
        ["where is my card", "WHERE IS MY CARD???", "Ｗｈｅｒｅ is my card", "um, where is  my\tcard"],
    ],
)
def test_manners_and_marks_make_no_difference(variants: list[str]) -> None:
    assert {routed(text) for text in variants} == {variants[0]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("那个人", "人"),
        ("你呢", "你"),
        ("c++ or c#", "c or c"),
        ("version 3.14", "version 314"),
        ("今天天气怎么样", "今天天气非常糟糕"),
        ("把“hello world”翻译成中文", "把“world”翻译成中文"),
        ("is -5 more than 5", "is 5 more than 5"),
    ],
)
def test_meaning_makes_a_difference(first: str, second: str) -> None:
    assert routed(first) != routed(second)


@pytest.mark.parametrize("text", ["hi", "你好", "thanks", "谢谢", "???", "请问", "嗯"])
def test_manners_alone_are_kept(text: str) -> None:
    assert routed(text) == text


def test_the_model_never_reads_it() -> None:
    found = normalise("Please, What is ＫＶ Cache?")
    assert found.prompt_text == "Please, What is ＫＶ Cache?"
    assert found.routing_text == "what is kv cache"


def test_level_off_only_folds() -> None:
    assert normalise("Please remove  ＭＹ account!!", "off").routing_text == "please remove my account!!"


@given(text=st.text(max_size=30))
def test_it_follows_from_what_the_model_reads(text: str) -> None:
    for level in ("off", "light", "full"):
        found = normalise(text, level)
        assert normalise(found.prompt_text, level).routing_text == found.routing_text
        found.routing_text.encode()

"""What the model reads: what normalisation changes, and, more important, what it never does."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_svc.normalise import LEVELS, clean, has_content, normalise

UNTOUCHED = [
    # code
    "a ?? b",
    "what does x = a ?? b do",
    "!!x",
    "!!value",
    "...args",
    "def f(*args, **kwargs): ...",
    "foo(...args)",
    "val n = name!!",
    "let v = map[key]!!",
    "n!! is the double factorial",
    "what is 5!! and 7!!!",
    "xs !! 3",
    "xs!! 3",
    "`what??` is text",
    "Run `go test ./...` please",
    "```\nhello!!!\nworld???\n```",
    "see:\n```py\nprint('hi')!!!\n```",
    "    indented!!! code",
    "\tindented!!! code",
    "if (ready!!) go",
    "echo done!! && exit",
    "SELECT * FROM t WHERE name LIKE 'who??'",
    "select name from users where note = 'it''s!!'",
    'rust: println!("hi!!");',
    "// note!!",
    "-- note??",
    "key: value??;",
    # paths, links, patterns
    "C:\\Users\\me\\what??",
    "/usr/local/what??",
    "./run.sh??",
    "https://example.com/search??",
    "https://example.com/?q=a!!",
    "mail me at me@example.com??",
    "example.com??",
    "^abc???$",
    "\\d{2,}??",
    "match a*?? or b+??",
    "/colou?r??/i",
    "[a-z]!!",
    # quoted text
    '"what???" he said',
    "he said “what！！！” to me",
    "「怎么办？？？」是什么意思",
    "『啊！！』",
    "《怎么办？？》",
    "he said 'stop!!' twice",
    "~~gone~~ text",
    # numbers and ranges
    "1..5",
    "1...5",
    "10--20",
    "3.14159",
    "1,000,000",
    "第1～～5页",
    "2024-05-17",
    "$5!!",
    # letters and marks
    "sooooo good",
    "谢谢谢谢谢谢",
    "哈哈哈哈哈",
    "x² + y³ = z⁴",
    "ＡＢＣ１２３　全角",
    "ﬁne ligature",
    "Ⅷ and ½",
    "那个人",
    "那个人怎么样",
    "你呢",
    "这个呢",
    "……",
    "等等……然后呢",
    "wait... what",
    # emoji and scripts
    "👨‍👩‍👧‍👦",
    "👍🏽👍🏽",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "1️⃣ 2️⃣",
    "❗❗",
    "می‌خواهم",
    "क्‍ष",
    "I??",
]

LIGHT = [
    ("请问怎么退款啊？？？", "请问怎么退款啊？"),
    ("退款多久能到账！！！", "退款多久能到账！"),
    ("我要投诉！！！！！！！！", "我要投诉！"),
    ("下单以后还能改地址吗~~~~", "下单以后还能改地址吗~"),
    ("真的吗？！？！？！", "真的吗？！"),
    ("好的。。。", "好的。"),
    ("好的。。。！！！", "好的。！"),
    ("嗯…………", "嗯……"),
    ("为什么???快说", "为什么?快说"),
    ("可以吗？？？👍", "可以吗？👍"),
    ("My card isn't working!!!", "My card isn't working!"),
    ("Why?? Because", "Why? Because"),
    ("What?!?! Really", "What?! Really"),
    ("first line!!\nsecond line??", "first line!\nsecond line?"),
    ("क्या हाल है???", "क्या हाल है?"),
    ("هل هذا صحيح؟؟؟", "هل هذا صحيح؟"),
    ("  spaces around  ", "spaces around"),
    ("\n\n  def f():\n    return 1\n\n", "  def f():\n    return 1"),
]

FULL = [
    ("那个……我想问一下，申请退款要怎么操作呢", "申请退款要怎么操作呢"),
    ("嗯，退款什么时候到我银行卡里呀", "退款什么时候到我银行卡里呀"),
    ("你好，请问，怎么退款", "怎么退款"),
    ("您好！发票怎么开", "发票怎么开"),
    ("Hi there! Can you remove my account???", "Can you remove my account?"),
    ("Hello,\nmy card is lost", "my card is lost"),
    ("Um, hello, where is my card?", "where is my card?"),
    ("Good morning. I lost my card.", "I lost my card."),
]

FULL_UNTOUCHED = [
    "Hello, World! program in C",
    "hello, goodbye by which band?",
    "Hi",
    "你好",
    "你好！",
    "Hi!!! 👍",
    "你好，用英语怎么说",
    "Hello, what does that mean in French?",
    "那个人，是谁",
    "嗯嗯啊啊",
    "Hi ...args",
    "hey jude, who wrote it",
    "“你好”，他说",
    "Hello world",
    "um how do I",
    "hi.example.com is down",
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_must_not_change(text: str, level: str) -> None:
    found = normalise(text, level).prompt_text
    assert found.strip() == text.strip()
    assert found == text or level != "off"


@pytest.mark.parametrize(("text", "expected"), LIGHT)
def test_light_collapses_marks_and_trims(text: str, expected: str) -> None:
    assert normalise(text, "light").prompt_text == expected
    assert normalise(text, "off").prompt_text == text


@pytest.mark.parametrize(("text", "expected"), FULL)
def test_full_also_drops_what_stands_apart_in_front(text: str, expected: str) -> None:
    assert normalise(text, "full").prompt_text == expected


@pytest.mark.parametrize("text", FULL_UNTOUCHED)
def test_full_keeps_a_greeting_that_carries_meaning(text: str) -> None:
    assert normalise(text, "full").prompt_text == normalise(text, "light").prompt_text


def test_light_leaves_greetings_to_the_model() -> None:
    assert normalise("Hi there! Where is my card?", "light").prompt_text == "Hi there! Where is my card?"


def test_light_is_the_default() -> None:
    assert normalise("真的吗？？") == normalise("真的吗？？", "light")


def test_an_unknown_level_is_refused_with_the_choice() -> None:
    with pytest.raises(ValueError, match=r"'medium' is not a level; allowed: off, light, full"):
        normalise("x", "medium")


def test_savings_are_counted_by_rule() -> None:
    found = normalise("\ufeff Hi, are you there??? ", "full")
    assert found.prompt_text == "are you there?"
    assert found.saved == {"invalid": 1, "space": 2, "marks": 2, "leading": 4}
    assert found.chars_saved == 9
    assert normalise("nothing to save").chars_saved == 0


WORDS = st.sampled_from(
    [
        *["hi", "hello", "um", "well", "你好", "那个", "嗯", "请问", "怎么退款", "啊", "谢谢", "world", "a", "x1"],
        *["foo.bar", "5", "https://a.b/c??", "`x!!`", "“啊！！”", "'it'", "👍🏽", "é", "می\u200c"],
    ]
)
MARKS = st.sampled_from(
    ["?", "!!", "？？？", "！", "。。", "……", "…", "~~~", ", ", "，", " ", "\n", "\t", "    ", "...", ":", "``", "/"]
)
ODD = st.sampled_from(
    ["\ufeff", "\u200b", "\x00", "\r\n", "\x85", "\ud83d", "\ude00", "\u0301", "\u200d", "\u1100\u1161"]
)
MESSY = st.one_of(st.text(max_size=30), st.lists(st.one_of(WORDS, MARKS, ODD), max_size=14).map("".join))


@given(text=MESSY, level=st.sampled_from(LEVELS))
def test_twice_is_once(text: str, level: str) -> None:
    once = normalise(text, level)
    twice = normalise(once.prompt_text, level)
    assert twice.prompt_text == once.prompt_text
    assert twice.routing_text == once.routing_text
    assert twice.chars_saved == 0


@given(text=MESSY, level=st.sampled_from(LEVELS))
def test_a_question_with_content_keeps_some(text: str, level: str) -> None:
    found = normalise(text, level)
    assert has_content(found.prompt_text) == has_content(text)
    if has_content(text):
        assert found.routing_text.strip()


@given(text=MESSY, level=st.sampled_from(LEVELS))
def test_the_model_always_gets_valid_text(text: str, level: str) -> None:
    prompt = normalise(text, level).prompt_text
    prompt.encode()
    assert unicodedata.is_normalized("NFC", prompt)
    assert not any(unicodedata.category(char) == "Cc" and char not in "\n\t" for char in prompt)
    assert "\ufeff" not in prompt
    assert "\u200b" not in prompt


PROTECTED = st.sampled_from(
    [
        "`a ?? b!!`",
        "“什么！！！”",
        "「啊？？」",
        '"what??"',
        "https://example.com/a??b",
        "C:\\x!!",
        "1...5",
        "5!!",
        "x²!!",
        "👨‍👩‍👧‍👦",
        "می‌خواهم",
        "'it''s!!'",
        "foo(...args)",
        "\\w+??",
    ]
)


@given(
    before=st.sampled_from(["", "Hi, ", "你好，", "那个……", "Is it ", "真的吗？？ ", "first!!\n"]),
    span=PROTECTED,
    after=st.sampled_from(["", " ok??", " 对吗？？？", "\nlast!!", " and more"]),
    level=st.sampled_from(LEVELS),
)
def test_a_protected_span_comes_through_whole(before: str, span: str, after: str, level: str) -> None:
    assert span in normalise(before + span + after, level).prompt_text


@given(text=st.text(max_size=40))
def test_only_marks_and_space_ever_go_at_light(text: str) -> None:
    valid, prompt = clean(text), normalise(text, "light").prompt_text
    keep = str.maketrans("", "", "!?！？؟。，、…~～ \n\t\u3000")
    assert "".join(valid.split()).translate(keep) == "".join(prompt.split()).translate(keep)


@pytest.mark.parametrize(
    "piece", ["ab?? ", "hi, ", "？", "'", "“", "a'' ", "```\n", "/a", ". ", "\n", "请问，", "``a`` ab!! "]
)
def test_long_hostile_text_is_no_trap(piece: str) -> None:
    """Work grows with the length, not with its square: the test's deadline would pass."""
    text = piece * (200_000 // len(piece))
    assert len(normalise(text, "light").prompt_text) <= len(text)

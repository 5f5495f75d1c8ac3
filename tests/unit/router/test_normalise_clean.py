"""Any string becomes valid text, and loses only what nobody can see."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_svc.normalise import clean, has_content


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("tab\tand\nnewline", "tab\tand\nnewline"),
        ("a\x00b\x07c\x7fd\x9fe", "abcde"),
        ("\ufeffstart and mid\ufeffdle", "start and middle"),
        ("zero\u200bwidth", "zerowidth"),
        ("line\r\nline\rline\x0bline\x0cline\x85line", "line\nline\nline\nline\nline\nline"),
        ("e\u0301", "é"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", "한글"),
        ("e\u200b\u0301", "é"),
        ("\ud83d\ude00", "😀"),
        ("lone \ud83d end", "lone \ufffd end"),
        ("lone \ude00", "lone \ufffd"),
        ("می‌خواهم 👨‍👩‍👧", "می‌خواهم 👨‍👩‍👧"),
        ("soft\u00adhyphen \u202eright to left", "soft\u00adhyphen \u202eright to left"),
        ("ＡＢＣ ﬁ ² Ⅷ", "ＡＢＣ ﬁ ² Ⅷ"),
        ("", ""),
    ],
)
def test_what_goes_and_what_stays(text: str, expected: str) -> None:
    assert clean(text) == expected


ANY = st.text(alphabet=st.characters(exclude_categories=[]), max_size=30)


@given(text=ANY)
def test_valid_in_one_pass(text: str) -> None:
    found = clean(text)
    found.encode()
    assert clean(found) == found
    assert unicodedata.is_normalized("NFC", found)
    assert not any(unicodedata.category(char) == "Cc" and char not in "\n\t" for char in found)


@given(text=ANY)
def test_content_survives(text: str) -> None:
    assert has_content(clean(text)) == has_content(text)


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000", "\ufeff", "\u200b\u200b", "\x00", "\u200d", "\u200e \u2060"])
def test_nothing_to_read(text: str) -> None:
    assert not has_content(text)


@pytest.mark.parametrize("text", ["a", "?", "👍", "啊", " \u200b.", "\ud800", "\u0301"])
def test_something_to_read(text: str) -> None:
    assert has_content(text)

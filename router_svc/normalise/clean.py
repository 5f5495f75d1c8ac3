"""Any string to valid text: the least that is done to every question, at every level."""

import re
import unicodedata

# Out: control characters except newline and tab, byte order mark, zero-width space. Joiners (U+200C, U+200D) are part
# of words and emoji and stay.
_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1f\x85]")
_UNWANTED = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\ufeff]")
_ANY = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile("[\\s\u200b-\u200f\u2060-\u2064\ufeff]*")


def clean(text: str) -> str:
    """The same text as valid Unicode in NFC, without control characters, byte order marks and zero-width spaces.

    Other line breaks become newlines, so that words stay apart. Surrogates are joined to characters; a lone one
    becomes U+FFFD. Cleaning twice is the same as cleaning once.
    """
    if text.isascii() and text.isprintable():
        return text
    if _ANY.search(text):
        if _SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = _UNWANTED.sub("", _LINE_BREAKS.sub("\n", text))
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def has_content(text: str) -> bool:
    """Whether a reader would see anything in the text: not only spaces, controls, joiners and direction marks."""
    return _INVISIBLE.fullmatch(_UNWANTED.sub("", text)) is None

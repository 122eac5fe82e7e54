"""Requests to remember something: "Remember: …", "don't forget …", "from now on", "always …", "never …".

They are recognised in English and, less completely, in a few other languages. Ordinary talk such as "I remember that
day" or "I have never been there" is no request, so the words count only at the beginning of a sentence, after a
punctuation mark, or after a word such as "please".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_BEGINNING = (
    r"(?:^|[,;:.!>*(\"'\u201c\u2014-] ?|\b(?:please|pls|just|kindly|bitte) )(?:and |but |so |also |just |please )?"
)
_ORDERS = (
    r"remember(?! (?:when|the time|how|back)\b)(?:\b|:)|(?:do not|don['\u2019]?t|never) forget\b|(?:keep|bear) in mind\b"
    r"|make (?:a )?note\b|note (?:that|:)|take note\b|memori[sz]e\b"
    r"|merk(?:e)? (?:dir|es dir)\b|vergiss nicht\b|denk daran\b|recuerda\b|no olvides\b|souviens-toi\b|n['\u2019]oublie pas\b"
)
_RULES = (
    r"(?:always|never)\b(?! (?:happy|glad|here|nice|great|good|fun|a |an |the |mind\b|been|knew|thought|felt|heard|seen|had"
    r"|did|was|too late|again|say never|gets?\b|looks?\b|feels?\b))"
)
_REQUEST = re.compile(rf"{_BEGINNING}(?:{_ORDERS}|{_RULES})|\b(?:and|but|so|also) (?:{_ORDERS})", re.IGNORECASE)
_FROM_NOW_ON = re.compile(
    r"\bfrom now on\b|\bfrom (?:here|this point) on\b|\b(?:you|we) (?:must|should|shall|have to|need to) (?:always|never)\b"
    r"|\bab (?:jetzt|sofort)\b|\bvon nun an\b|\ba partir de ahora\b|\bd\u00e9sormais\b"
    r"|\u899a\u3048\u3066|\u5fd8\u308c\u306a\u3044\u3067|\u8bb0\u4f4f|\u4e0d\u8981\u5fd8",
    re.IGNORECASE,
)
_COMFORT = re.compile(
    r"\b(?:giv(?:e|ing) up|quit|believe in|keep going|you['\u2019]?(?:r|rs|re|ll|ve)?|yourself|dreams?)\b",
    re.IGNORECASE,
)
_STATED = re.compile(r"\d|(?<![.!?:] )(?<!^)\b(?!I\b)[A-Z]\w|:\s")


def asks_to_remember(text: str, *, people: Sequence[str] = ()) -> bool:
    """Return whether a sentence asks to be remembered.

    Between people, words of comfort count only with a number, a third person's name or a colon.
    """
    if text.endswith("?") or not (_REQUEST.search(text) or _FROM_NOW_ON.search(text)):
        return False
    if not people or not _COMFORT.search(text):
        return True
    for name in people:
        text = text.replace(name, "")
    return _STATED.search(text) is not None

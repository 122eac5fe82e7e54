"""Text as the demo model reads it: telling words and sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from math import log

# Longer lines are cut into pieces of about so many characters, so that a dump of data stays searchable.
LONGEST_SENTENCE = 600

_WORD = re.compile(r"[^\W_]+(?:[-_.'\u2019/][^\W_]+)*")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
# The same without Hiragana, which mostly writes endings.
_TELLING_UNSPACED = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ABBREVIATIONS = ("Dr", "Mr", "Mrs", "Ms", "St", "e.g", "i.e", "vs")
SENTENCE_END = re.compile(
    "".join(rf"(?<!\b{re.escape(word)}\.)" for word in _ABBREVIATIONS)
    # Three dots go on with a small letter, and end with a capital one.
    + r"(?:(?<=[.!?…])(?!\s+(?<=\.\.\.\s)[a-z])|(?<=[.!?…][)\"'\u201d\u2019\]]))\s+|(?<=[\u3002\uff01\uff1f])|\n+"
)
_PIECE = re.compile(rf".{{1,{LONGEST_SENTENCE}}}(?:\s|$)|.{{1,{LONGEST_SENTENCE}}}", re.DOTALL)
LIST_MARK = re.compile(r"^(?:[-*\u2022>|]+\s+|#{1,6}\s+|\d{1,3}[.)]\s+)+")
# The commonest endings, after at least three characters; "ss" is none.
_ENDING = re.compile(r"(?<=.{3})(?:['\u2019]s|ing|ed|es|(?<!s)s)$")
_STOP_WORDS = """
    a about above after again all also am an and any anything are as ask asked at be because been before being
    but by can could did do does doing done for from get give go going got had has have having he her here hers him
    his how i i'd i'll i'm i've if in into is it it's its itself just know let like ll made make many may me mean
    mention mentioned might mine more most much must my need no not now of off on one only or other our ours out
    over own please re really remember remind said same saw say says see she should show so some something still
    such sure talk talked tell than that that's the their them then there these they thing things think this those
    to told too try us ve very want was way we well were what what's whatever when where which while who whom whose
    why will with would yes you you're your yours yourself
    aber als am an auch auf aus bei bin bist da das dass dein dem den der des die doch du ein eine einem einen einer
    er es für habe hast hat hatte ich ihr im in ist ja kann mein mich mir mit nicht noch nur oder sich sie sind so
    heißt heisst meine meinen meiner welche welcher welches über um und uns von war was wer wie wir zu zum zur
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms(text: str) -> list[str]:
    """Return the telling words of a text, in lower case and without their commonest endings."""
    words = (word.lower() for word in _WORD.findall(_UNSPACED.sub(" ", text)))
    plain = [_ENDING.sub("", word) for word in words if word not in STOP_WORDS]
    # Chinese, Japanese and Korean do not put spaces between words: pairs of characters stand in for them.
    pairs = [run[at : at + 2] for run in _TELLING_UNSPACED.findall(text) for at in range(max(1, len(run) - 1))]
    return plain + pairs


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, without the marks of lists and headings and without empty ones."""
    found: list[str] = []
    for line in SENTENCE_END.split(text):
        if line and not line.isspace():
            found.extend(" ".join(piece.split()) for piece in _PIECE.findall(LIST_MARK.sub("", line.strip())))
    return [sentence for sentence in found if sentence]


def rarity(documents: Iterable[Iterable[str]]) -> dict[str, float]:
    bags = [set(document) for document in documents]
    counts = Counter(term for bag in bags for term in bag)
    return {term: log(1 + len(bags) / count) for term, count in counts.items()}


def shorten(text: str, limit: int) -> str:
    """Put a text on one line of at most ``limit`` characters, cut at a word, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"

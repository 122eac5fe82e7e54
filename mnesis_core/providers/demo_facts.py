"""Facts as the demo model finds them: sentences that say by their words that they are to be kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mnesis_core.facts.requests import asks_to_remember
from mnesis_core.providers.demo_source import LABEL
from mnesis_core.providers.demo_text import LIST_MARK, SENTENCE_END

MARKER = "MNESIS-FACTS"
MOST_FACTS = 20
LONGEST, SHORTEST = 300, 8  # characters of a sentence

# Every repetition has a bound: a text made for it must not make the search slow.
_NAME = r"((?:[\w'\u2019-]{1,30} ){0,3}[\w'\u2019-]{1,30}?)"
_RULES = (
    (
        "decision",
        re.compile(r"\b(?:we|i)(?:['\u2019]ve| have)? (?:decided|agreed|settled on|will go with)\b", re.IGNORECASE),
    ),
    (
        "preference",
        re.compile(r"\b(?:i(?:['\u2019]d| would)? (?:much |really )?prefer|my favou?rite)\b", re.IGNORECASE),
    ),
    ("entity", re.compile(rf"^(?:and |but |so |by the way, )?(?:my|our) {_NAME} (?:is|are)\b", re.IGNORECASE)),
    ("open_task", re.compile(r"^(?:to-?do:|(?:we|i) still (?:need|have) to\b)", re.IGNORECASE)),
    ("constraint", re.compile(r"^(?:never|always)\b|\b(?:must|may not|has to) \w", re.IGNORECASE)),
)
_REMEMBER = re.compile(r"\b(?:remember|forget|keep in mind|note that)\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b(?:my|our|the) {_NAME} (?:is|are|must|has to|should)\b", re.IGNORECASE)
_QUOTATION = re.compile('["\u201c\u201d\u00ab\u00bb]')
_FOR = re.compile(r"\bprefer .{1,80} for ([\w ]{1,40})[.!]?$", re.IGNORECASE)


def facts_in(source: str) -> str:
    """Return the facts of a transcript as the JSON that is asked for."""
    found = []
    for seq, role, sentence in _sentences(source):
        # An assistant that repeats what was said states nothing itself.
        states = not sentence.endswith("?") and (role == "user" or not _QUOTATION.search(sentence))
        kind = next((kind for kind, rule in _RULES if rule.search(sentence)), "") if states else ""
        if states and asks_to_remember(sentence) and _REMEMBER.search(sentence):
            kind = "instruction"
        if kind and (role == "user" or kind == "decision"):
            found.append(_fact(sentence, kind=kind, seq=seq))
    return json.dumps({"facts": found[-MOST_FACTS:]}, ensure_ascii=False)


def _sentences(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield what users and assistants say, with the number of the message."""
    seq, role = 0, ""
    for line in source.split("\n"):
        text = line
        if label := LABEL.match(line):
            seq, role, text = int(label[1]), "" if label[3] else label[2], line[label.end() :]
        if role not in ("user", "assistant"):
            continue
        for piece in SENTENCE_END.split(text):
            sentence = LIST_MARK.sub("", (piece or "").strip())
            if SHORTEST <= len(sentence) <= LONGEST:
                yield seq, role, sentence


def _fact(sentence: str, *, kind: str, seq: int) -> dict[str, Any]:
    subject = _FOR.search(sentence) if kind == "preference" else None
    subject = subject or _SUBJECT.search(sentence)
    return {
        "statement": sentence,
        "kind": kind,
        "subject": subject[1] if subject else "",
        "message": seq,
        "quote": sentence,
    }

"""How the demo model reads the messages it is shown, and finds what was said about something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mnesis_core.providers.demo_prose import WHAT_TO_TRY
from mnesis_core.providers.demo_text import rarity, sentences, terms

SMALLEST_COVERAGE = 0.4
"""Share of a question's telling words, by weight, that a sentence must hold to be an answer."""
LONGEST_MESSAGE = 400_000
"""Characters of one message that are read."""
LONGEST_SEARCH = 4_000
"""Sentences that are looked at, the newest first."""

_LAST_SEQ = re.compile(r'\bmessages="\d+-(\d{1,9})"')
_GAP = "[Left out here"
"""How the note begins that stands where messages had to be left out."""
_OWN_WORDS = ("Ask me later", "I find nothing about", "I searched the whole record", WHAT_TO_TRY)
"""How this model's own messages are told that only repeat what others said."""
_QUESTION_END = re.compile(r"[?\uff1f]\W{0,20}$")
_QUESTION_START = re.compile(
    r"\s{0,20}(?:what|who|when|where|which|why|how|do you|did i|was|wer|wann|wo)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message that the demo model is shown."""

    number: int
    """Place in the conversation, from 1, as far as what is shown tells; 0 for a summary."""
    role: str
    text: str

    @property
    def is_summary(self) -> bool:
        """Whether it stands in for older messages."""
        return self.number == 0

    @property
    def place(self) -> str:
        """Who said it and where, for a person."""
        if self.is_summary:
            return "the summary of older messages"
        return f"message {self.number}, {'you' if self.role == 'user' else 'me'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A sentence that fits a question."""

    said: Said
    sentence: str
    score: float


def text_of(message: dict[str, Any]) -> str:
    """The text of a message in the shape of OpenAI Chat Completions, whose content may be a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def conversation(messages: list[dict[str, Any]]) -> list[Said]:
    """What user and assistant said, numbered; summaries that stand in for older messages are marked."""
    found: list[Said] = []
    number = 0
    for message in messages:
        role, text = str(message.get("role", "")), text_of(message)
        if role not in ("user", "assistant"):
            continue
        summaries, own_text = _split(text[:LONGEST_MESSAGE])
        for attributes, body in summaries:
            if last_seq := _LAST_SEQ.search(attributes):
                number = int(last_seq[1])
            found.append(Said(number=0, role="user", text=body))
        if own_text.startswith(_GAP):
            found.append(Said(number=0, role="user", text=""))
        elif own_text or not summaries:
            number += 1
            found.append(Said(number=number, role=role, text=own_text))
    return [said for said in found if said.text or said.is_summary]


def _split(text: str) -> tuple[list[tuple[str, str]], str]:
    """The summaries in a message (attributes, text) and what it says itself. Linear, whatever the text."""
    summaries, rest, at = [], [], 0
    while (start := text.find("<summary ", at)) >= 0 and (end := text.find("</summary>", start)) >= 0:
        attributes, _, body = text[start:end].partition(">")
        # The lines above the rule say what a summary is; they are no part of it.
        summaries.append((attributes, (body.partition("\n---\n")[2] or body).strip()))
        rest.append(text[at:start])
        at = end + len("</summary>")
    return summaries, "".join([*rest, text[at:]]).strip()


def is_question(text: str) -> bool:
    """Whether it asks for something."""
    return _QUESTION_START.match(text) is not None or _QUESTION_END.search(text[-100:]) is not None


def recall(question: str, earlier: list[Said], *, role: str = "", limit: int = 3) -> list[Hit]:
    """The sentences that best fit a question, best first; empty when nothing does.

    :param role: look only at what this side said; empty: at everything
    """
    wanted = set(terms(question))
    pool = list(islice(_searched(earlier, role), LONGEST_SEARCH))
    weights = rarity(words for _, _, words in pool)
    hits = [
        Hit(said=said, sentence=sentence, score=score)
        for said, sentence, words in pool
        if (score := _score(said, sentence, words, wanted, weights)) > 0
    ]
    return _different(sorted(hits, key=lambda hit: -hit.score), limit)


def _searched(earlier: list[Said], role: str) -> Iterator[tuple[Said, str, set[str]]]:
    for said in reversed(earlier):
        if (role in ("", said.role) or said.is_summary) and not _is_echo(said):
            for sentence in reversed(sentences(said.text)):
                yield said, sentence, set(terms(sentence))


def _is_echo(said: Said) -> bool:
    return said.role == "assistant" and any(words in said.text for words in _OWN_WORDS)


def _score(said: Said, sentence: str, words: set[str], wanted: set[str], weights: dict[str, float]) -> float:
    rarest = max(weights.values(), default=1.0)
    total = sum(weights.get(term, rarest) for term in wanted)
    shared = sum(weights[term] for term in wanted & words)
    if not total or shared / total < SMALLEST_COVERAGE:
        return 0.0
    score = shared / total / (1 + len(words) / 40)
    # An earlier question, or our own quoting of it, shares all words with this one and answers nothing.
    if is_question(sentence):
        score *= 0.3
    if said.role == "assistant" and not said.is_summary:
        score *= 0.5
    return score


def _different(hits: list[Hit], limit: int) -> list[Hit]:
    found: list[Hit] = []
    for hit in hits:
        words = set(terms(hit.sentence))
        if hit.score < found[0].score * 0.5 if found else False:
            break
        if all(len(words & set(terms(other.sentence))) < 0.7 * len(words) for other in found):
            found.append(hit)
        if len(found) == limit:
            break
    return found

"""Facts of a summarised part of a session: what a model is asked, and what of its reply counts.

The question is one about a summary's messages, with another prompt, so that its payload is rebuilt like any other. A reply
proposes; only what it quotes word for word is a fact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mnesis_core.compaction.fidelity import ItemKind, SourceItem, sentence_around
from mnesis_core.compaction.requests import (
    SHIPPED_FOLDER,
    Question,
    cleaned,
    failure_of,
    payload_of,
    read_prompt,
    reply_limit,
)
from mnesis_core.compaction.transcript import transcript_pieces
from mnesis_core.errors import InvalidRequest
from mnesis_core.facts import (
    LONGEST_STATEMENT,
    LONGEST_SUBJECT,
    SPEAKERS,
    FactKind,
    FactMethod,
    NewFact,
    find_quote,
    plain_subject,
)
from mnesis_core.llm.interface import ModelSpec, Reply, Request
from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.text import read_json

BY_RULE = "rule.1"
"""The version of a reflection that asks no model: it only carries over what the summary had lost."""
MOST_CARRIED, MOST_PASSAGES = (
    6,
    2,
)  # facts that one summary may add by rule; those of them that neither instruct nor decide
FEWEST_LOST = 2  # items that such a sentence has, since a name or a number alone says little
PROMPT = read_prompt(SHIPPED_FOLDER / "facts.md")
TARGET_TOKENS = 1_500  # what the answer is asked to keep to
MOST_FACTS = 20  # of one reply
MOST_QUESTIONS = 8  # about one summary, whose messages may be more than the model reads at once
UNREADABLE = "unreadable"
SALIENCE = {
    FactKind.INSTRUCTION: 80,
    FactKind.CONSTRAINT: 70,
    FactKind.DECISION: 60,
    FactKind.PREFERENCE: 60,
    FactKind.OPEN_TASK: 50,
    FactKind.ENTITY: 50,
}
SALIENCE_OF_PASSAGE = 40
_SAID_BY = re.compile(r"[^:\n]{1,80}: ")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    facts: tuple[NewFact, ...] = ()  # in the order in which they were said
    refused: int = 0  # proposed, and not to be found in what was said
    problem: str = ""  # why the reply has no facts at all; empty if it is a list of them

    def __add__(self, other: Found) -> Found:
        return Found(
            facts=self.facts + other.facts,
            refused=self.refused + other.refused,
            problem=self.problem or other.problem,
        )


def spoken(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the messages in which a user or an assistant says something."""
    return [message for message in messages if message.role in SPEAKERS and _text_of(message).strip()]


def questions_about(messages: Sequence[StoredMessage], *, spec: ModelSpec, limit: int) -> list[Question]:
    """Return what to ask about messages, in pieces of at most ``limit`` tokens: usually one."""
    pieces = transcript_pieces(messages, limit)
    return [
        Question(
            level=1,
            prompt=PROMPT,
            target=TARGET_TOKENS,
            limit=limit,
            piece=number,
            pieces=len(pieces),
            merges=(),
            request=Request(
                payload=payload_of(PROMPT, piece, TARGET_TOKENS), max_output_tokens=reply_limit(spec, TARGET_TOKENS)
            ),
        )
        for number, piece in enumerate(pieces[:MOST_QUESTIONS], start=1)
    ]


def read_facts(reply: Reply, messages: Sequence[StoredMessage], *, alias: str) -> Found:
    """Return the facts of a model's reply about these messages, without what was not said there."""
    if failure := failure_of(reply):
        return Found(problem=failure)
    said, text = None, cleaned(reply.text)
    with suppress(InvalidRequest):
        said = read_json(text[text.find("{") : text.rfind("}") + 1])
    proposed = said.get("facts") if isinstance(said, dict) else None
    if not isinstance(proposed, list):
        return Found(problem=UNREADABLE)
    by_seq = {message.seq: message for message in messages}
    read = [_fact(proposal, by_seq, alias=alias) for proposal in proposed[:MOST_FACTS]]
    facts = {(fact.kind, fact.subject, fact.statement): fact for fact in read if fact is not None}
    in_order = sorted(facts.values(), key=lambda fact: (fact.said_seq, fact.places[0].start))
    return Found(facts=tuple(in_order), refused=read.count(None) + len(proposed[MOST_FACTS:]))


def carried_facts(missing: Sequence[SourceItem], messages: Sequence[StoredMessage]) -> list[NewFact]:
    """Return what a summary had lost as facts, each word for word what one of the messages says.

    Instructions and decisions come first, the newest first; then the sentences that have most of the rest. They are few,
    since facts are shown in every prompt.
    """
    found: dict[str, NewFact] = {}
    sentences = [one for one in missing if one.item.kind.is_sentence]
    for one in sorted(sentences, key=lambda one: (one.item.kind is ItemKind.DECISION, -one.source.seq)):
        if len(found) == MOST_CARRIED:
            break
        fact = _carried(one.item.text, FactKind(one.item.kind.value), messages)
        if fact is not None:
            found.setdefault(fact.statement, fact)
    others = [one for one in missing if not one.item.kind.is_sentence]
    lost = Counter(sentence_around(one.source.text, one.item.start, one.item.end) for one in others)
    telling = [text for text, count in lost.most_common(MOST_PASSAGES) if count >= FEWEST_LOST]
    for text in telling[: MOST_CARRIED - len(found)]:
        fact = _carried(text, FactKind.ENTITY, messages)
        if fact is not None:
            found.setdefault(fact.statement, fact)
    return sorted(found.values(), key=lambda fact: (fact.said_seq, fact.places[0].start))


def _carried(text: str, kind: FactKind, messages: Sequence[StoredMessage]) -> NewFact | None:
    # A summary says who said something before a colon.
    for quote in (text, _SAID_BY.sub("", text, count=1)):
        place = find_quote(messages, quote)
        if place is not None and len(quote) <= LONGEST_STATEMENT:
            said = next(one for one in messages if any(part.id == place.part_id for part in one.parts))
            return NewFact(
                statement=quote.strip(),
                kind=kind,
                said_at=said.created_at,
                said_seq=said.seq,
                salience=SALIENCE_OF_PASSAGE if kind is FactKind.ENTITY else SALIENCE[kind],
                method=FactMethod.RULE,
                places=(place,),
            )
    return None


def _fact(proposal: Any, messages: Mapping[int, StoredMessage], *, alias: str) -> NewFact | None:
    if not isinstance(proposal, dict):
        return None
    said = (proposal.get(name) for name in ("statement", "kind", "subject", "quote"))
    statement, kind, subject, quote = (value.strip() if isinstance(value, str) else "" for value in said)
    place_in = proposal.get("message")
    message = messages.get(place_in) if type(place_in) is int else None
    if message is None or not 0 < len(statement) <= LONGEST_STATEMENT or kind not in SALIENCE:
        return None
    place = find_quote([message], quote)
    # Models get numbers wrong even beside a true quotation.
    if place is None or not set(_NUMBER.findall(statement)) <= set(_NUMBER.findall(_text_of(message))):
        return None
    return NewFact(
        statement=statement,
        kind=FactKind(kind),
        subject=plain_subject(subject)[:LONGEST_SUBJECT],
        said_at=message.created_at,
        said_seq=message.seq,
        salience=SALIENCE[FactKind(kind)],
        method=FactMethod.MODEL,
        model=alias,
        places=(place,),
    )


def _text_of(message: StoredMessage) -> str:
    return "\n".join(stored.part.text for stored in message.parts if isinstance(stored.part, TextPart))

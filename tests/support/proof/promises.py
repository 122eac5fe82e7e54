"""What writers were told, compared with what the record holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.support.processes.writers import (
    ANSWERED,
    CLAIMED,
    OVER,
    REFUSED,
    STREAMED,
    first_words,
    question,
    whole_answer,
)
from tests.support.proof.record_check import Ask

_TURNS = "SELECT idempotency_key, id, state, seq FROM turns WHERE idempotency_key IS NOT NULL"
_TEXTS = """
    SELECT messages.turn_id, messages.role, message_parts.content FROM messages
    JOIN message_parts ON message_parts.message_id = messages.id
    WHERE message_parts.part_type = 'text' ORDER BY messages.session_id, messages.seq, message_parts.part_index
"""
_JOURNAL = """
    SELECT messages.turn_id, messages.role, stream_journal.text FROM messages
    JOIN stream_journal ON stream_journal.message_id = messages.id ORDER BY stream_journal.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a writer heard about the turn of a key; see ``tests.support.processes.writers.append_turn``."""

    writer: str
    key: str
    word: str


def broken_promises(words: Iterable[Word], ask: Ask) -> list[str]:
    """Everything that was told and is not so, a sentence each.

    What was acknowledged is there exactly once, with its texts, and in the writer's order; what was refused is not
    there; what nobody knows (the writer died before it was told) is there once or not at all.
    """
    words = list(words)
    heard = defaultdict(set)
    for word in words:
        heard[word.key].add(word.word)
    turns = {key: (id, state, seq) for key, id, state, seq in ask(_TURNS)}
    texts = defaultdict(list)
    for turn_id, role, text in [*ask(_TEXTS), *ask(_JOURNAL)]:
        texts[turn_id, role].append(text)
    return [
        *(f"nobody asked for {key}" for key in turns.keys() - heard.keys()),
        *(sentence for key, said in heard.items() for sentence in _of_turn(key, said, turns.get(key), texts)),
        *_out_of_order(words, {key: seq for key, (_, _, seq) in turns.items()}),
    ]


def _of_turn(
    key: str, said: set[str], turn: tuple[str, str, int] | None, texts: dict[tuple[str, str], list[str]]
) -> Iterator[str]:
    if turn is None:
        if said & {CLAIMED, OVER}:
            yield f"the turn of {key} is lost"
        return
    turn_id, state, _ = turn
    if REFUSED in said and not said & {CLAIMED, OVER}:
        yield f"the turn of {key} was refused and is there"
    if texts[turn_id, "user"] != [question(key)]:
        yield f"the question of {key} is {texts[turn_id, 'user']}"
    answers = texts[turn_id, "assistant"]
    if ANSWERED in said and (state, answers) != ("completed", [whole_answer(key)]):
        yield f"the answer of {key} is {answers}, and its turn {state}"
    if STREAMED in said and answers not in ([first_words(key)], [whole_answer(key)]):
        yield f"what was streamed of {key} is {answers}"


def _out_of_order(words: list[Word], places: dict[str, int]) -> Iterator[str]:
    lines = defaultdict(list)
    for word in words:
        if word.word == CLAIMED and word.key in places:
            lines[word.writer].append(places[word.key])
    for writer, line in lines.items():
        if line != sorted(set(line)):
            yield f"the turns of writer {writer} stand in another order"

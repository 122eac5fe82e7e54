"""Conversations to evaluate memory with: data sets with questions, any transcript that can be imported, and planted
facts.

LoCoMo (arXiv 2402.17753), QMSum (arXiv 2104.05938: meetings, whose first speaker becomes the user) and LongMemEval
(arXiv 2410.10813: each question with a history of its own). Questions are no part of what is said, nor are answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from random import Random
from typing import Any

from mnesis_core.compaction.evaluation.measures import Conversation, Question
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import Role, TextPart
from mnesis_core.transcripts import FORMATS, detect_format
from mnesis_core.transcripts.reading import (
    UnreadableRecord,
    identifier,
    list_in,
    load_json,
    mapping_in,
    one_line,
    read_elements,
    text_in,
)
from mnesis_core.transcripts.values import ROOT, Transcript, TranscriptMessage, TranscriptTurn

FIRST_BYTES = 65_536
LONGEST_NAME = 80
LOCOMO_ANSWERED = (1, 2, 3, 4)
"""Categories of LoCoMo whose questions the conversation answers."""
LOCOMO_PLAIN = (1, 4)
"""The categories whose answers are words of the conversation."""
_DIALOGUE_ID = re.compile(r"D\d+:\d+")
# A quote inside a JSON string stands after a backslash, so these find keys and never text about them.
_QMSUM = re.compile(r'"meeting_transcripts"\s*:')
_LONGMEMEVAL = re.compile(r'"haystack_sessions"\s*:')
ONE_CHANGES_IN = 5
_NOUNS = (
    *("harbour code", "gate code", "locker number", "call sign", "customs seal", "vault code", "radio channel"),
    *("berth number", "pilot licence", "warehouse key", "tide table", "ferry ticket", "lighthouse signal"),
)
_PLACES = (
    *("Lisbon", "Bergen", "Trieste", "Galway", "Tallinn", "Valencia", "Odense", "Split", "Reykjavik", "Naples"),
    *("Gdansk", "Porto", "Marseille", "Aarhus", "Riga", "Bari", "Cork", "Turku", "Palermo", "Nantes"),
    *("Oslo", "Malmo", "Varna", "Cadiz", "Genoa", "Rostock", "Hull", "Bilbao", "Corfu", "Haifa"),
)
MOST_FACTS = len(_NOUNS) * len(_PLACES)
_DIGITS, _LETTERS = "23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ"  # without those that are mistaken for others


def read_conversations(name: str, content: bytes) -> list[Conversation]:
    """Return the conversations of a file that say anything, each as a line, with the questions that come with it.

    :raises InvalidRequest: the file is of no known format, or no conversation in it can be read.
    """
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    if _QMSUM.search(text):
        found = [
            conversation for number, record in _records(name, text) for conversation in _meeting(name, number, record)
        ]
    elif _LONGMEMEVAL.search(text):
        found = [conversation for number, record in _records(name, text) for conversation in _haystack(number, record)]
    else:
        format = detect_format(name, content[:FIRST_BYTES])
        transcripts = [line_of(one) for one in FORMATS[format](content, name=name).transcripts]
        found = [Conversation(name=_name(name, one.external_id), transcript=one) for one in transcripts]
        if format == "locomo":
            samples = {text_in(record, "sample_id"): record for _, record in _records(name, text)}
            found = [_with_questions_of_locomo(one, samples) for one in found]
    if len(found) == 1 and found[0].transcript.format != "longmemeval":
        found = [replace(found[0], name=_name(name))]
    found = [one for one in found if any(True for _ in one.transcript.messages)]
    if not found:
        raise InvalidRequest(f"'{one_line(name, 200)}' holds no conversation that can be read.")
    return found


def _records(name: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the readable records of a JSON document, a list, or JSON Lines, numbered from 1."""
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and _is_whole(lines[0]):
        for number, line in enumerate(lines, 1):
            try:
                yield number, load_json(line)
            except UnreadableRecord as error:
                raise InvalidRequest(f"'{one_line(name, 200)}', line {number}: {error}.", line=number) from error
        return
    for number, element in enumerate(read_elements(text), 1):
        if element.reason:
            raise InvalidRequest(f"'{one_line(name, 200)}', record {number}: {element.reason}.", record=number)
        yield number, element.value


def _is_whole(line: str) -> bool:
    try:
        return isinstance(load_json(line), dict)
    except UnreadableRecord:
        return False


def _name(file: str, part: str = "") -> str:
    stem = PurePath(file).name.split(".")[0]
    return one_line(f"{stem}: {part}" if part else stem, LONGEST_NAME)


# LoCoMo


def _with_questions_of_locomo(conversation: Conversation, samples: dict[str, Any]) -> Conversation:
    sample = samples.get(conversation.transcript.external_id, {})
    named = {message.external_id: number for number, message in enumerate(conversation.transcript.messages, 1)}
    questions = []
    for one in list_in(sample, "qa"):
        # In some samples a question names a turn that is not there.
        ids = _DIALOGUE_ID.findall(str(mapping_in({"one": one}, "one").get("evidence")))
        evidence = sorted({named[id] for id in ids if id in named})
        if evidence and one.get("category") in LOCOMO_ANSWERED:
            answer = text_in(one, "answer") if one["category"] in LOCOMO_PLAIN else ""
            questions.append(_question(text_in(one, "question"), answer, evidence, len(named)))
    return replace(conversation, questions=tuple(filter(None, questions)))


def _question(text: str, answer: str, evidence: Iterable[int], messages: int) -> Question | None:
    numbers = tuple(sorted(evidence))
    if not text.strip() or not numbers:
        return None
    return Question(
        kind="asked", text=text, answer=answer, evidence=numbers, place=(numbers[-1] - 1) / max(1, messages)
    )


# QMSum


def _meeting(name: str, number: int, record: Any) -> Iterator[Conversation]:
    said = [one for one in list_in(record, "meeting_transcripts") if isinstance(one, dict)]
    first = text_in(said[0], "speaker") if said else ""
    messages = [
        TranscriptMessage(
            external_id=f"{number}:{place}",
            role="user" if text_in(one, "speaker") == first else "assistant",
            parts=(TextPart(text=f"{text_in(one, 'speaker')}: {text_in(one, 'content')}"),),
        )
        for place, one in enumerate(said)
    ]
    # General questions ask for the whole meeting: no message is their evidence. Answers are summaries in other words.
    asked = [
        _question(text_in(one, "query"), "", _spans(one, len(messages)), len(messages))
        for one in list_in(record, "specific_query_list")
    ]
    transcript = _transcript(f"meeting {number}", "qmsum", messages)
    yield Conversation(
        name=_name(name, f"meeting {number}"), transcript=transcript, questions=tuple(filter(None, asked))
    )


def _spans(query: Any, messages: int) -> set[int]:
    """Return the numbers, from 1, of the messages in spans such as ``["11", "38"]``, which count from 0 and include both."""
    numbers: set[int] = set()
    for span in list_in(query, "relevant_text_span"):
        if isinstance(span, list) and len(span) == 2 and all(str(end).isdecimal() for end in span):
            first, last = (min(int(str(end)[:9]), messages) for end in span)
            numbers |= set(range(first + 1, min(last + 1, messages) + 1))
    return numbers


# LongMemEval


def _haystack(number: int, record: Any) -> Iterator[Conversation]:
    sessions = list_in(record, "haystack_sessions")
    ids = [str(id) for id in list_in(record, "haystack_session_ids")]
    id = text_in(record, "question_id") or f"question {number}"
    wanted = {str(one) for one in list_in(record, "answer_session_ids")}
    messages: list[TranscriptMessage] = []
    marked, in_sessions = set[int](), set[int]()
    for place, session in enumerate(sessions):
        for said in session if isinstance(session, list) else ():
            role: Role = "assistant" if text_in(said, "role") == "assistant" else "user"
            parts = (TextPart(text=text_in(said, "content")),)
            messages.append(TranscriptMessage(external_id=f"{place}:{len(messages)}", role=role, parts=parts))
            if isinstance(said, dict) and said.get("has_answer") is True:
                marked.add(len(messages))
            if place < len(ids) and ids[place] in wanted:
                in_sessions.add(len(messages))
    question = _question(text_in(record, "question"), text_in(record, "answer"), marked or in_sessions, len(messages))
    # Questions with this ending are about what was never said.
    is_answered = question is not None and not id.endswith("_abs")
    yield Conversation(
        name=one_line(id, LONGEST_NAME),
        transcript=_transcript(id, "longmemeval", messages),
        questions=(question,) if question and is_answered else (),
    )


# Lines of turns


def _transcript(id: str, format: str, messages: list[TranscriptMessage]) -> Transcript:
    """Return a transcript whose turns begin with each message of the user that follows another's."""
    turns: list[list[TranscriptMessage]] = []
    for message in messages:
        if not turns or (message.role == "user" and turns[-1][-1].role != "user"):
            turns.append([])
        turns[-1].append(message)
    return Transcript(
        external_id=identifier(id),
        format=format,
        title=one_line(id, 200),
        turns=tuple(TranscriptTurn(external_id=turn[0].external_id, messages=tuple(turn)) for turn in turns),
    )


def line_of(transcript: Transcript) -> Transcript:
    """Return a transcript without the branches that did not go on."""
    if transcript.is_line:
        return transcript
    turns = transcript.turns
    home = {message.external_id: index for index, turn in enumerate(turns) for message in turn.messages}
    index: int | None = home.get(transcript.chosen, len(turns) - 1)
    line: list[TranscriptTurn] = []
    last = ""  # The message that the turn after continues; empty for the turn's last.
    while index is not None and index >= 0:
        turn = turns[index]
        ids = [message.external_id for message in turn.messages]
        kept = turn.messages[: ids.index(last) + 1] if last else turn.messages
        line.append(replace(turn, messages=kept, continues=""))
        last = turn.continues
        if last == ROOT:
            break
        before = index
        index = home.get(last) if last else index - 1
        if index is not None and index >= before:
            break
    return replace(transcript, turns=tuple(reversed(line)))


# Plants facts in a conversation whose answers cannot be guessed, and stand nowhere else: codes of invented things.
#
# The same seed plants the same facts. One fact in five changes later: what was said last counts.


def plant(conversation: Conversation, *, count: int, seed: int) -> Conversation:
    """Return the conversation with ``count`` facts spread over it, and a question for each before its own questions.

    A fact is a paragraph of its own at the end of a message that says something.

    :raises InvalidRequest: no message has a text, or there are not so many facts.
    """
    if not 0 <= count <= MOST_FACTS:
        raise InvalidRequest(f"the number of planted facts must lie between 0 and {MOST_FACTS}", field="plant")
    messages = list(conversation.transcript.messages)
    spots = [index for index, message in enumerate(messages) if _last_text(message) is not None]
    if count and not spots:
        raise InvalidRequest(f"{conversation.name} has no message with a text, so no fact can be planted.")
    random = Random(f"{seed} {conversation.transcript.external_id}")  # noqa: S311 - it must be repeatable, not secret
    codes = _codes(random, "\n".join(map(repr, messages)).casefold())
    subjects = random.sample([(noun, place) for place in _PLACES for noun in _NOUNS], count)
    paragraphs: dict[int, list[str]] = {}
    questions = []
    for number, (noun, place) in enumerate(subjects):
        at = min(len(spots) - 1, int(len(spots) * (number + random.random()) / count))
        code, outdated, subject = next(codes), "", f"{noun} of {place}"
        changes = number % ONE_CHANGES_IN == ONE_CHANGES_IN - 1 and at > 0
        if changes:
            outdated = next(codes)
            paragraphs.setdefault(spots[random.randrange(at)], []).append(f"The {subject} is {outdated}.")
        said = f"The {subject} is {'now ' if changes else ''}{code}."
        paragraphs.setdefault(spots[at], []).append(said)
        questions.append(
            Question(
                kind="changed" if changes else "planted",
                text=f"What is the {subject}?",
                answer=code,
                outdated=outdated,
                evidence=(spots[at] + 1,),
                place=spots[at] / len(messages),
            )
        )
    transcript = conversation.transcript
    grown = iter([_with(message, paragraphs.get(index, [])) for index, message in enumerate(messages)])
    turns = tuple(replace(turn, messages=tuple(next(grown) for _ in turn.messages)) for turn in transcript.turns)
    transcript = replace(transcript, turns=turns)
    return replace(conversation, transcript=transcript, questions=(*questions, *conversation.questions))


def _codes(random: Random, said: str) -> Iterator[str]:
    """Yield codes such as ``7F-2K5``, each once and none that ``said``, folded, holds."""
    given: set[str] = set()
    while True:
        pairs = [random.choice(_DIGITS) + random.choice(_LETTERS) for _ in range(2)]
        code = f"{'-'.join(pairs)}{random.choice(_DIGITS)}"
        if code not in given and code.casefold() not in said:
            given.add(code)
            yield code


def _last_text(message: TranscriptMessage) -> tuple[int, TextPart] | None:
    """Return the last text that a person or a model said in a message, and its place among the parts."""
    if message.role == "system" or message.is_summary:
        return None
    parts = ((place, part) for place, part in reversed(list(enumerate(message.parts))) if isinstance(part, TextPart))
    return next(((place, part) for place, part in parts if part.text.strip()), None)


def _with(message: TranscriptMessage, paragraphs: list[str]) -> TranscriptMessage:
    found = _last_text(message)
    if not paragraphs or found is None:
        return message
    place, part = found
    grown = replace(part, text="\n\n".join([part.text, *paragraphs]))
    return replace(message, parts=(*message.parts[:place], grown, *message.parts[place + 1 :]))

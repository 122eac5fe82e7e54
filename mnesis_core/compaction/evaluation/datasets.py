"""Conversations to evaluate memory with, from files: data sets with questions, and any transcript that can be imported.

LoCoMo (arXiv 2402.17753), QMSum (arXiv 2104.05938: meetings, whose first speaker becomes the user) and LongMemEval
(arXiv 2410.10813: each question with a history of its own). Questions are no part of what is said, nor are answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from mnesis_core.compaction.evaluation.values import Conversation, Question
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

"""LoCoMo (Snap Research, arXiv 2402.17753): very long conversations of two people, with questions about them.

Who speaks first becomes the user, the other one the assistant. The questions and the annotations are data on the
last message, never spoken text: a model that reads the conversation must not read the answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mnesis_core.errors import gettext_noop
from mnesis_core.messages import ImagePart, Role, TextPart
from mnesis_core.transcripts.building import MessageDraft, Tally, TranscriptDraft, data_part, read_families
from mnesis_core.transcripts.reading import identifier, list_in, mapping_in, one_line, text_in
from mnesis_core.transcripts.values import NamedSource, ParseResult, Progress, Source

FORMAT = "locomo"
_SESSION = re.compile(r"session_(\d{1,6})(_date_time)?")
_DATE = re.compile(r"\s*(\d{1,2}):(\d\d)\s*([ap])m\s+on\s+(\d{1,2})\s+([a-z]{3})[a-z]*,?\s+(\d{4})\s*", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_IMAGE_FIELDS = ("img_url", "blip_caption", "query", "re-download")
_SPOKEN_FIELDS = ("speaker", "dia_id", "text")


def parse(
    source: Source, *, name: str = "", companions: Sequence[NamedSource] = (), progress: Progress | None = None
) -> ParseResult:
    """:raises InvalidRequest: it holds no sample"""
    tally = Tally(FORMAT)
    families = read_families(
        tally, source, companions, progress, name=name, element="sample", key="conversation", read=_sample
    )
    return ParseResult(transcripts=tuple(draft.build() for [draft] in families), report=tally.report())


def _sample(sample: dict[str, Any], tally: Tally) -> list[TranscriptDraft]:
    tally.read("sample")
    conversation = mapping_in(sample, "conversation")
    draft = TranscriptDraft(tally, identifier(text_in(sample, "sample_id")) or "sample")
    matches = [match for match in map(_SESSION.fullmatch, conversation) if match]
    sessions = [f"session_{number}" for number in sorted({match[1] for match in matches}, key=lambda n: (int(n), n))]
    spoken = (text_in(said, "speaker") for session in sessions for said in list_in(conversation, session))
    first = next((speaker for speaker in spoken if speaker), text_in(conversation, "speaker_a"))
    pair = [text_in(conversation, key) for key in ("speaker_a", "speaker_b")]
    second = next((speaker for speaker in pair if speaker != first), "")
    labels = {"speaker_user": first, "speaker_assistant": second, "speaker_a": pair[0], "speaker_b": pair[1]}
    draft.labels = {key: one_line(value, 200) for key, value in labels.items() if value}
    draft.title = one_line(" and ".join(speaker for speaker in (first, second) if speaker), 200)
    for session in sessions:
        _session(draft, conversation, session, first)
    rest = {
        key: value
        for key, value in conversation.items()
        if not _SESSION.fullmatch(key) and not (key in ("speaker_a", "speaker_b") and isinstance(value, str))
    }
    if rest:
        draft.keep("conversation", rest)
    for key, value in sample.items():
        if key not in ("conversation", "sample_id") or (key == "sample_id" and not isinstance(value, str)):
            draft.tally.read("question" if key == "qa" else key, len(value) if isinstance(value, list) else 1)
            draft.keep(key, value)
    return [draft]


def _session(draft: TranscriptDraft, conversation: dict[str, Any], session: str, first: str) -> None:
    draft.tally.read("session")
    said, date = conversation.get(session), conversation.get(f"{session}_date_time")
    at = date_of(date) if isinstance(date, str) else None
    draft.saw(at if said else None)
    draft.tally.note(
        gettext_noop("dates name no time zone; UTC stands in")
        if at
        else gettext_noop("dates that are missing or unreadable")
    )
    about = {"session": session, "date_time": date}
    if not isinstance(said, list) or not said:
        left = {} if session not in conversation else {"dialogue": said}
        draft.keep("session", {**about, **left})
        return
    for index, utterance in enumerate(said):
        draft.tally.read("utterance")
        _utterance(draft, utterance, at, first)
        if index == 0:
            draft.keep("session", about)


def _utterance(draft: TranscriptDraft, said: Any, at: datetime | None, first: str) -> None:
    if not isinstance(said, dict) or not isinstance(said.get("text"), str):
        draft.tally.note(gettext_noop("utterances without a text are kept as data"))
        draft.keep("unreadable", said)
        return
    speaker = text_in(said, "speaker")
    role: Role = "user" if speaker == first else "assistant"
    message = MessageDraft(external_id=identifier(text_in(said, "dia_id")), role=role, created_at=at)
    draft.add(message, starts_turn=role == "user")
    message.parts.append(TextPart(text=said["text"]))
    if caption := text_in(said, "blip_caption"):
        # The picture itself is elsewhere, and by now mostly gone; what it shows was part of the conversation.
        message.parts.append(ImagePart(caption=caption))
    rest = {key: value for key, value in said.items() if key not in _SPOKEN_FIELDS or not isinstance(value, str)}
    if speaker not in (first, draft.labels.get("speaker_assistant")):
        rest["speaker"] = said.get("speaker")
    if rest:
        kind = "image" if any(field in rest for field in _IMAGE_FIELDS) else "utterance"
        message.parts.append(data_part(FORMAT, kind, rest))


def date_of(text: str) -> datetime | None:
    """Return a time such as ``1:56 pm on 8 May, 2023`` as UTC, since it names no zone."""
    match = _DATE.fullmatch(text)
    if match is None or match[5].lower() not in _MONTHS:
        return None
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    month = _MONTHS.index(match[5].lower()) + 1
    try:
        return datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC)
    except ValueError:
        return None

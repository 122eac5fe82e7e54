"""The messages of a session on its page, with the beginnings of their parts, and the sessions related to one.

A page of fifty messages takes three queries, one more if tools launched sub-agents, and up to three more if it has pictures. It holds a bounded number of
characters, whatever the messages hold; ``load_piece`` reads the rest of a text piece by piece.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Length, Substr
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from mnesis_core.context.branches import END, Path
from mnesis_core.context.fitting import file_of_output
from mnesis_core.context.manifests import parts_with_pictures
from mnesis_core.errors import AnswerRefused, MessageNotFoundError, PartNotFoundError
from mnesis_core.files.detection import is_text, media_type_of
from mnesis_core.files.pictures import AUDIO_FORMATS, AUDIO_KIND, FORMATS, PDF, PDF_KIND, PICTURE_KIND
from mnesis_core.files.references import GivenFile, given_file, referred_file
from mnesis_core.messages import (
    KNOWN_PARTS,
    AudioPart,
    CitationPart,
    CompactionMarkerPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    MediaPart,
    Part,
    ProviderPart,
    ProviderToolPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
)
from mnesis_core.records import SessionRecord, TurnState, UsageRecord, WaitsFor, is_id, record_of
from mnesis_core.text import ESCAPE, decode_text, encode_text, excerpt
from mnesis_core.turns.inbox import INBOX
from mnesis_core.turns.questions import Question, read_questions
from sessions_app.models import Message, MessagePart
from sessions_app.ownership import is_temporary
from sessions_app.pages.formats import format_count, format_duration, format_money, format_size, format_tokens
from sessions_app.pages.markdown import (
    MARKDOWN_LIMIT,
    PIECE,
    Heading,
    LongText,
    outline,
    render_markdown,
    show_invisible,
    shown_title,
)
from sessions_app.record.branch_queries import rows_on
from sessions_app.record.message_queries import JSON_TYPES, read_json_part, usage_of
from sessions_app.record.ratings import thumb_of
from sessions_app.record.session_queries import launched_by_parts, titles_of, visible_sessions
from sessions_app.record.turn_queries import answering_calls, calls_after, load_turn
from sessions_app.search.index import CALLS

LARGEST = 2**63 - 1  # the highest number that a message can have
CHUNK = 50
RECORDS = 50
HEAD = 2_000  # characters of a folded text that come with its message
MOST_CHILDREN = 200
FIELDS = {
    "content": "content",
    "input": "tool_input",
    "output": "output",
    "error": "error_message",
    "late": "late_output",
}
"""The column behind each field name in an address."""
NOT_SHARED = ("data", ProviderPart.type)
"""Types of parts that only the owner is shown: records of an import, and what a provider wants back as it came."""
LAUNCHING_TOOLS = {"task", "tasks", "agent"}
"""Tools, in lower case, whose calls launch sub-agents: ours, and those in imported histories."""
USAGE_SOURCES = {
    "provider": pgettext_lazy("who counted tokens", "provider"),
    "estimated": pgettext_lazy("who counted tokens", "estimated"),
    "imported": pgettext_lazy("who counted tokens", "imported"),
    "caller": pgettext_lazy("who counted tokens", "caller"),
}
_FIRST_TEXT = re.compile(r':\s*"((?:[^"\\]|\\.)+)')
MEDIA = (ImagePart.type, AudioPart.type, DocumentPart.type)
_WEB = re.compile(r"https?://[^\s]+\Z")
_CUT_ESCAPE = re.compile(f"{ESCAPE}[0-9A-F]{{0,3}}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    id: str
    title: str
    state: str
    archived_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    id: str
    index: int
    kind: str  # the part's type; "file" for everything that is a file, "unknown" for a type that this version does not know
    label: str = ""
    file_id: str = ""
    is_picture: bool = False  # whether the file is shown in its place
    is_document: bool = False  # whether it is a PDF, which models may be sent whole
    is_audio: bool = False  # whether it is audio that models may be sent, and that the page plays
    described_to: str = ""  # the model that answered and was sent words in place of the picture
    detail: str = ""  # the kind and size of a file, the place in a source
    caption: str = ""  # the words for a file, or of a source
    address: str = ""  # of a source on the web
    number: int = 0  # of a source among those of its message, each counted once
    ran_by: str = ""  # the provider that ran a tool call itself
    content: LongText | None = None
    html: SafeString | None = None  # the rendered Markdown of a text that is short enough for it
    outline: tuple[Heading, ...] = ()  # of a long text
    state: str = ""
    preview: str = ""
    input: LongText | None = None
    output: LongText | None = None
    error: LongText | None = None
    whole_file: str = ""  # the id of the file that holds all of a long output or error
    late: LongText | None = None  # the output that arrived after the call was closed
    note: str = ""  # the comment of the person who approved or refused the call
    asks: str = ""  # what the turn waits for at this call: "approval", "answer" or "caller"
    questions: tuple[Question, ...] = ()  # that wait for an answer
    launched: tuple[Relative, ...] = ()
    duration: str = ""
    running_since: datetime | None = None
    compacted_at: datetime | None = None

    @property
    def may_be_sent(self) -> bool:
        return self.is_picture or self.is_document or self.is_audio


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A message among its siblings: those that follow the same message, or that begin the conversation."""

    after_seq: int  # of the message that they follow; 0 for none
    place: int  # of this one, from 1
    count: int
    pair: tuple[int, int]  # the branches of this one and the one before it, or after the first, in order

    @property
    def previous(self) -> int:
        return self.place - 1

    @property
    def next(self) -> int:
        """The place of the one after it, or 0."""
        return self.place + 1 if self.place < self.count else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    id: str
    seq: int
    branch: int
    turn_id: str
    role: str
    model: str
    is_summary: bool
    created_at: datetime
    parts: tuple[PartView, ...]
    record_count: int  # imported records, which are loaded on demand
    is_running: bool
    ending: str
    """``failed``, ``cancelled``, ``interrupted``, ``incomplete``, ``length``, ``passed_on`` to another model, or empty."""
    error_code: str
    error_message: str
    usage: UsageRecord
    is_from_inbox: bool = False  # whether it joins messages of peers
    ends_turn: bool = False  # whether it is the last message of a turn that has ended
    thumb: str = ""  # of its rating
    versions: Versions | None = None  # where it has siblings

    @property
    def actions(self) -> list[str]:
        """The actions that apply to the message, by their names in ``transcript/actions.js``."""
        if self.is_running:
            return []
        is_said = any(part.kind in ("text", "file") for part in self.parts)
        is_person = self.role == "user" and not self.is_from_inbox
        has_words = any(part.kind in ("text", "refusal") for part in self.parts)
        may_rate = has_words and self.ends_turn and self.role == "assistant" and not self.thumb
        possible = {
            "copy": has_words,
            "again": self.ends_turn and (self.role == "assistant" or bool(self.ending)),
            "compare": self.ends_turn and self.role == "assistant",
            "edit": is_person and is_said,
            "save": is_person and has_words,
            "fork": True,
            "link": True,
            "share": True,
            "call": self.role == "assistant",
            "calls": self.role != "assistant",
            "up": may_rate,
            "down": may_rate,
        }
        return [name for name, is_possible in possible.items() if is_possible]

    @property
    def numbers(self) -> list[str]:
        return numbers_of(self.usage)


def numbers_of(usage: UsageRecord) -> list[str]:
    """Return tokens, cost and their source in words; nothing as long as none of them is known."""
    if usage.tokens_input is None and usage.tokens_output is None and usage.cost_micros is None:
        return []
    counted = usage.usage_source or ""
    known = (
        format_tokens(usage.tokens_input, usage.tokens_output),
        format_money(usage.cost_micros),
        USAGE_SOURCES.get(counted, counted),
    )
    return [str(text) for text in known if text]


def load_chunk(
    session_id: str,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = CHUNK,
    path: Path | None = None,
) -> list[MessageView]:
    """Return messages, oldest first: the newest ones before ``before``, or the first ones after ``after``.

    :param path: return only messages on this one
    """
    rows = _messages(session_id)
    if path is not None:
        stretches = path.within(1 if after is None else after + 1, END if before is None else before - 1)
        return _views(rows_on(rows, list(stretches), limit=limit, newest=after is None))
    if after is not None:
        return _views(list(rows.filter(seq__gt=after).order_by("seq")[:limit]))
    if before is not None:
        rows = rows.filter(seq__lt=before)
    return _views(list(rows.order_by("-seq")[:limit])[::-1])


def load_message(session_id: str, message_id: str) -> MessageView:
    """:raises MessageNotFoundError: the session has no such message."""
    row = _messages(session_id).filter(id=message_id).first()
    if row is None:
        raise MessageNotFoundError(message_id=message_id)
    return _views([row])[0]


def as_shared(message: MessageView) -> MessageView:
    """Return a message as other people see it: without what came to it later, what it led to, and what it cost.

    Nothing in it leads to what is only the owner's.
    """
    parts = tuple(
        replace(
            part,
            file_id="" if part.kind == "citation" else part.file_id,
            whole_file="",
            late=None,
            launched=(),
            described_to="",
            compacted_at=None,
        )
        for part in message.parts
        if part.kind not in NOT_SHARED
    )
    return replace(message, parts=parts, record_count=0, usage=UsageRecord(), thumb="")


def check_shared(session_id: str, part_id: str, *, field: str, path: Path) -> None:
    """:raises PartNotFoundError: no message on the path shows this text to other people."""
    rows = MessagePart.objects.filter(session_id=session_id, id=part_id).exclude(part_type__in=NOT_SHARED)
    place = rows.values_list("message__branch", "message__seq").first()
    if place is None or not path.has(*place) or field == "late":
        raise PartNotFoundError(part_id=part_id)


def shows_file(session_id: str, file_id: str, *, path: Path) -> bool:
    """Return whether a message on a path shows a file to other people, as ``as_shared`` has it.

    A model's words name no file, whatever they look like.
    """
    rows = MessagePart.objects.filter(session_id=session_id, content__contains=encode_text(file_id))
    heads = _part_heads(rows.exclude(part_type=TextPart.type, message__role="assistant"))
    views = [(head["message_id"], _view_part(head)) for head in heads]
    messages = {id for id, view in views if view.kind == "file" and view.file_id == file_id}
    places = Message.objects.filter(id__in=messages).values_list("branch", "seq")
    return any(path.has(*place) for place in places)


def load_piece(session_id: str, part_id: str, *, field: str, offset: int, length: int = PIECE) -> LongText:
    """Return a piece of a part's text, from ``offset`` stored characters on.

    :raises PartNotFoundError: the session has no such part, or the part has no such text.
    """
    column = FIELDS.get(field)
    rows = MessagePart.objects.filter(session_id=session_id, id=part_id)
    row = rows.values_list(Substr(column, offset + 1, length), Length(column)).first() if column else None
    if row is None or row[0] is None:
        raise PartNotFoundError(part_id=part_id)
    return _stretch(part_id, field, row[0], offset=offset, length=row[1])


def load_whole_text(session_id: str, part_id: str, *, field: str) -> str:
    """:raises PartNotFoundError: the session has no such part, or the part has no such text."""
    column = FIELDS.get(field)
    rows = MessagePart.objects.filter(session_id=session_id, id=part_id)
    text = rows.values_list(column, flat=True).first() if column else None
    if text is None:
        raise PartNotFoundError(part_id=part_id)
    return str(text)


def load_records(session_id: str, message_id: str, *, after: int) -> list[PartView]:
    rows = MessagePart.objects.filter(
        session_id=session_id, message_id=message_id, part_type="data", part_index__gt=after
    )
    return [_view_part(row) for row in _part_heads(rows.order_by("part_index"))[:RECORDS]]


def find_seq(session_id: str, reference: str, *, path: Path | None = None) -> int:
    """Return the number of the message that a number, an id of a message, part or turn, or a time refers to.

    A time after the last message gives ``LARGEST``. A number is returned as it is, whether the message exists or not.

    :param reference: ``120``, ``msg_…``, ``part_…``, ``turn_…``, or a date or time in ISO 8601
    :param path: where a time is looked for
    :raises MessageNotFoundError: the session has nothing with this id.
    """
    if reference.isascii() and reference.isdecimal():
        return min(int(reference[:19]), LARGEST)
    messages = Message.objects.filter(session_id=session_id).order_by("seq")
    try:
        given = datetime.fromisoformat(reference)
        # astimezone fails here on a time that UTC cannot hold; otherwise the database would.
        moment = (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        parts = MessagePart.objects.filter(session_id=session_id, id=reference).values("message_id")
        messages = messages.filter(Q(id=reference) | Q(turn_id=reference) | Q(id__in=parts))
    else:
        messages = messages.filter(created_at__gte=moment)
        if path is not None:
            return next((row.seq for row in rows_on(messages, path.stretches, limit=1)), LARGEST)
    seq = messages.values_list("seq", flat=True).first()
    if seq is None and moment is None:
        raise MessageNotFoundError(message_id=reference)
    return LARGEST if seq is None else int(seq)


def load_spoken_text(session_id: str, message_id: str) -> str:
    return "\n".join(content for _, content in _contents(session_id, message_id, TextPart.type, RefusalPart.type))


def load_said(session_id: str, message_id: str) -> tuple[str, list[str]]:
    """Return the words of a person's message, and apart from them the ids of the files given with it.

    :raises MessageNotFoundError: the session has no such message.
    """
    contents = _contents(session_id, message_id, TextPart.type, FileRefPart.type, *MEDIA)
    if not contents:
        raise MessageNotFoundError(message_id=message_id)
    given = [
        given_file(content) if kind == TextPart.type else referred_file(_json(content)) for kind, content in contents
    ]
    words = [content for (_, content), file in zip(contents, given, strict=True) if file is None]
    ids = [file.file_id for file in given if file is not None and is_id(file.file_id)]
    return "\n".join(words), list(dict.fromkeys(ids))


def _contents(session_id: str, message_id: str, *part_types: str) -> list[tuple[str, str]]:
    """Return the type and content of each part of these types of a message, in order."""
    rows = MessagePart.objects.filter(session_id=session_id, message_id=message_id, part_type__in=part_types)
    rows = rows.order_by("part_index")
    return [(kind, content) for kind, content in rows.values_list("part_type", "content")]


def list_children(session_id: str, *, with_temporary: bool = False) -> list[tuple[str, str]]:
    """Return (id, title) of the sessions launched by this one or forked from it, oldest first."""
    rows = visible_sessions().filter(parent_id=session_id).order_by("created_at", "id")
    if not with_temporary:
        rows = rows.exclude(is_temporary())
    return [(id, title) for id, title in rows.values_list("id", "title")[:MOST_CHILDREN]]


def list_launched(session_id: str, part_ids: Sequence[str]) -> dict[str, tuple[Relative, ...]]:
    """Return the sessions that tool calls launched, by the part of each call."""
    return {
        part_id: tuple(
            Relative(id=child.id, title=shown_title(child.title), state=child.state, archived_at=child.archived_at)
            for child in children
        )
        for part_id, children in launched_by_parts(session_id, part_ids).items()
    }


def parent_titles(sessions: Sequence[SessionRecord], *, owner_id: int) -> dict[str, str]:
    parents = {session.parent_id for session in sessions if session.parent_id}
    titles = titles_of(parents, owner_id=owner_id) if parents else {}
    return {id: shown_title(title) for id, title in titles.items()}


def first_words(arguments: str) -> str:
    """Return the first text among a call's arguments, such as a command or a path. The JSON may be cut off."""
    found = _FIRST_TEXT.search(arguments)
    if found is None:
        return "" if arguments in ("{}", "") else arguments
    text = _json(f'"{found[1]}"')
    return text if isinstance(text, str) else found[1]


def _messages(session_id: str) -> QuerySet[Any]:
    later = Message.objects.filter(turn_id=OuterRef("turn_id"), seq__gt=OuterRef("seq"))
    rows: QuerySet[Any] = Message.objects.filter(session_id=session_id)
    shown: QuerySet[Any] = (
        rows.select_related("turn")
        .defer("turn__options")
        .annotate(ends_turn=~Exists(later), thumb=thumb_of(OuterRef("id")))
    )
    return shown


def _views(rows: Sequence[Any]) -> list[MessageView]:
    asking: dict[str, dict[str, Any]] = {}
    # A session has at most one suspended turn.
    turn_id = next((row.turn_id for row in rows if row.turn.state == TurnState.SUSPENDED), None)
    if turn_id is not None:
        turn = load_turn(turn_id, session_id=rows[0].session_id)
        asking = {
            waiting.part_id: {
                "asks": waiting.reason.value,
                "questions": read_questions(waiting.input) if waiting.reason is WaitsFor.ANSWER else (),
            }
            for waiting in turn.waits_for
        }

    all_parts = MessagePart.objects.filter(message_id__in=[row.id for row in rows])
    heads = list(_part_heads(all_parts.exclude(part_type="data").order_by("message_id", "part_index")))
    calls = [part["id"] for part in heads if part["tool_name"].lower() in LAUNCHING_TOOLS]
    launched = list_launched(rows[0].session_id, calls) if calls else {}
    views = [
        replace(_view_part(part), **asking.get(part["id"], {}), launched=launched.get(part["id"], ())) for part in heads
    ]
    described = _described(
        rows,
        {part["message_id"] for part, view in zip(heads, views, strict=True) if view.may_be_sent},
    )
    parts: dict[str, list[PartView]] = defaultdict(list)
    for part, view in zip(heads, views, strict=True):
        model, seen = described.get(part["message_id"], ("", frozenset()))
        is_described = view.may_be_sent and view.id not in seen
        parts[part["message_id"]].append(replace(view, described_to=model) if is_described else view)

    counted = all_parts.filter(part_type="data").values("message_id").annotate(number=Count("id"))
    records = dict(counted.values_list("message_id", F("number")))
    return [_view_message(row, _numbered(parts[row.id]), records.get(row.id, 0)) for row in rows]


def _numbered(parts: Sequence[PartView]) -> tuple[PartView, ...]:
    """Return the parts of a message with their sources numbered, and without those that say the same again."""
    numbers: dict[tuple[str, ...], int] = {}
    shown: list[PartView] = []
    for part in parts:
        what = (part.address or part.file_id or part.label, part.detail, part.caption)
        if part.kind != "citation":
            shown.append(part)
        elif what not in numbers:
            numbers[what] = len(numbers) + 1
            shown.append(replace(part, number=numbers[what]))
    return tuple(shown)


def _described(rows: Sequence[Any], message_ids: Set[str]) -> dict[str, tuple[str, Set[str]]]:
    """Return for each of these messages the model that was asked next, and the parts whose pictures it was sent."""
    turns = {row.turn_id: row.id for row in rows if row.role == "user" and row.id in message_ids}
    answers = {row.id for row in rows if row.role == "assistant" and row.id in message_ids}
    asked = [(turns[turn_id], *call) for turn_id, *call in (answering_calls(turns) if turns else ())]
    asked += calls_after(answers) if answers else ()
    found: dict[str, tuple[str, Set[str]]] = {}
    for message_id, model, manifest in asked:
        # The manifest of an erased call is empty, and an imported one may be anything.
        with suppress(ValueError):
            if manifest:
                found[message_id] = (show_invisible(model), parts_with_pictures(manifest))
    return found


def _view_message(row: Any, parts: tuple[PartView, ...], record_count: int) -> MessageView:
    code, message = row.error_code, row.error_message
    if code is None and row.ends_turn:
        code, message = row.turn.error_code, row.turn.error_message
    return record_of(
        MessageView,
        row,
        model=show_invisible(row.model),
        parts=parts,
        record_count=record_count,
        is_running=row.role == "assistant" and row.finalized_at is None and row.turn.state == "running",
        versions=None,
        ending=_ending(row, code),
        error_code=code or "",
        error_message=show_invisible(message or ""),
        usage=usage_of(row),
        is_from_inbox=row.role == "user" and row.turn.origin == INBOX,
        ends_turn=row.ends_turn and row.turn.ended_at is not None,
        thumb=row.thumb or "",
    )


def _ending(row: Any, error_code: str | None) -> str:
    state = row.turn.state if row.ends_turn else "completed"
    if row.outcome == "cancelled" or state == "cancelled":
        return "cancelled"
    if error_code == AnswerRefused.code:
        return "refused"
    if state in ("interrupted", "incomplete", "failed"):
        return str(state)
    if row.outcome in ("failed", "incomplete") and not row.ends_turn:
        return "passed_on"
    if row.outcome in ("broken", "incomplete", "failed"):
        return "interrupted" if row.outcome == "broken" else str(row.outcome)
    if error_code:
        return "failed"
    return "length" if row.finish_reason in ("length", "max_tokens") else ""


def _part_heads(rows: QuerySet[MessagePart]) -> QuerySet[MessagePart, dict[str, Any]]:
    plain = ("id", "message_id", "part_index", "part_type", "label", "tool_name", "tool_state")
    times = ("started_at", "completed_at", "compacted_at", "decision_note")
    cut = {
        "content_head": Substr("content", 1, MARKDOWN_LIMIT),
        "content_length": Length("content"),
        "input_head": Substr("tool_input", 1, HEAD),
        "input_length": Length("tool_input"),
        "output_head": Substr("output", 1, HEAD),
        "output_length": Length("output"),
        "error_head": Substr("error_message", 1, HEAD),
        "error_length": Length("error_message"),
        "late_head": Substr("late_output", 1, HEAD),
        "late_length": Length("late_output"),
    }
    heads: QuerySet[MessagePart, dict[str, Any]] = rows.values(*plain, *times, **cut)
    return heads


def _view_part(row: dict[str, Any]) -> PartView:
    kind, head, length = row["part_type"], row["content_head"], row["content_length"]
    if kind in CALLS:
        return _view_tool(row)
    made = partial(PartView, id=row["id"], index=row["part_index"])
    if (part := read_json_part(kind, decode_text(head))) is not None:
        return _view_json(part, made)
    content = partial(_stretch, row["id"], "content", offset=0, length=length)
    if kind == TextPart.type and (given := given_file(decode_text(head[:HEAD]))):
        return _view_file(given, made, content=content(head[:HEAD]))
    is_prose = kind in (TextPart.type, RefusalPart.type) and length <= MARKDOWN_LIMIT
    is_known = kind in KNOWN_PARTS and kind not in JSON_TYPES
    opaque = ProviderPart.read_label(row["label"], "") if kind == ProviderPart.type else None
    label, detail = (opaque.provider, opaque.kind) if opaque else (row["label"], "")
    html, headings = outline(render_markdown(decode_text(head)), row["id"]) if is_prose else (None, ())
    return made(
        kind=kind if is_known else "unknown",
        label=show_invisible(label if is_known else kind),
        detail=show_invisible(detail),
        html=html,
        outline=headings,
        content=content(head if is_prose else head[:HEAD]),
    )


def _view_json(part: Part, made: Callable[..., PartView]) -> PartView:
    match part:
        case FileRefPart():
            return _view_file(referred_file(asdict(part)), made)
        case MediaPart():
            detail = (part.media_type, format_size(part.size) if part.size else "", part.source if part.name else "")
            return made(
                kind="file",
                label=show_invisible(part.name or part.source or part.file_id or part.type),
                file_id=part.file_id if is_id(part.file_id) else "",
                is_picture=is_id(part.file_id) and part.media_type in FORMATS,
                is_document=is_id(part.file_id) and part.media_type == PDF,
                is_audio=is_id(part.file_id) and part.media_type in AUDIO_FORMATS,
                detail=show_invisible(" · ".join(filter(None, detail))),
                caption=show_invisible(part.caption),
            )
        case CitationPart():
            return made(
                kind="citation",
                label=show_invisible(part.title or part.url or part.file_id or part.message_id or _("without a name")),
                file_id=part.file_id if is_id(part.file_id) else "",
                detail=show_invisible(part.place),
                caption=show_invisible(part.text),
                address=part.url if _WEB.match(part.url) else "",
            )
        case CompactionMarkerPart():
            count = part.compacted_message_count
            label = _("%(count)s messages were compacted here by the system this history comes from")
            return made(kind=part.type, label=label % {"count": count})
        case StepStartPart() | StepFinishPart():
            return made(kind=part.type, label=_("step %(number)s") % {"number": part.step_index})
        case _:
            raise TypeError(f"{part.type} is not stored as JSON")


def _view_file(given: GivenFile, made: Callable[..., PartView], *, content: LongText | None = None) -> PartView:
    # The bytes of a picture or a recording are not read as text, so their count would mislead.
    is_counted = given.token_count and is_text(given.file_type)
    tokens = _("%(shown)s tokens") % {"shown": format_count(given.token_count)} if is_counted else ""
    return made(
        kind="file",
        label=show_invisible(given.path or given.file_id or _("a file")),
        file_id=given.file_id if is_id(given.file_id) else "",
        is_picture=is_id(given.file_id)
        and given.file_type == PICTURE_KIND
        and media_type_of(b"", given.path) in FORMATS,
        is_document=is_id(given.file_id) and given.file_type == PDF_KIND,
        is_audio=is_id(given.file_id)
        and given.file_type == AUDIO_KIND
        and media_type_of(b"", given.path) in AUDIO_FORMATS,
        detail=show_invisible(" · ".join(filter(None, (given.file_type, tokens)))),
        content=content,
    )


def _view_tool(row: dict[str, Any]) -> PartView:
    ran_by = row["label"] if row["part_type"] == ProviderToolPart.type else ""
    started, completed = row["started_at"], row["completed_at"]
    asked = _head_of(row, "input")
    arguments = _json(asked.text) if asked is not None and not asked.rest else None
    if asked is not None and arguments and isinstance(arguments, dict | list):
        asked = replace(asked, text=show_invisible(json.dumps(arguments, indent=2, ensure_ascii=False)))
    return PartView(
        id=row["id"],
        index=row["part_index"],
        kind="tool",
        label=show_invisible(row["tool_name"]) or _("unnamed tool"),
        state=row["tool_state"] or ("completed" if row["error_head"] is None else "error"),
        ran_by=show_invisible(ran_by),
        preview=excerpt(first_words(decode_text(row["input_head"])), 120),
        input=asked,
        output=_head_of(row, "output"),
        error=_head_of(row, "error"),
        whole_file=file_of_output(decode_text(row["output_head"] or row["error_head"] or "")),
        late=_head_of(row, "late"),
        note=show_invisible(row["decision_note"] or ""),
        duration=format_duration((completed - started).total_seconds()) if started and completed else "",
        running_since=started if row["tool_state"] == "running" else None,
        compacted_at=row["compacted_at"],
    )


def _head_of(row: dict[str, Any], field: str) -> LongText | None:
    head = row[f"{field}_head"]
    return _stretch(row["id"], field, head, offset=0, length=row[f"{field}_length"]) if head is not None else None


def _stretch(part_id: str, field: str, stored: str, *, offset: int, length: int) -> LongText:
    """Return a piece that was read from ``offset`` on; ``length`` is that of the whole text, in stored characters."""
    end = offset + len(stored)
    if end < length:
        # The text must not end inside an escape of the text codec.
        stored = _CUT_ESCAPE.sub("", stored) or stored
        end = offset + len(stored)
    return LongText(part_id=part_id, field=field, text=show_invisible(decode_text(stored)), end=end, length=length)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

"""The mapping between the values of the core and the rows of the record, and reads of messages with their parts."""

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any, assert_never

from django.db import connection
from django.db.models import F, Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from mnesis_core.context.branches import END, Path, Stretch
from mnesis_core.errors import MessageNotFoundError, PartNotFoundError, TurnNotFoundError
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_call, estimate_part, estimate_text
from mnesis_core.messages import (
    UNANSWERED_STATES,
    AudioPart,
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    MediaPart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    ToolState,
    UnknownPart,
)
from mnesis_core.records import (
    STATES,
    InteractionStatus,
    LiveText,
    MessageEnd,
    PartPlace,
    ToolInteraction,
    UsageRecord,
    record_of,
)
from mnesis_core.text import decode_text, encode_text
from mnesis_core.values import dataclass
from sessions_app.database.tables import fetch, select_columns, time_of
from sessions_app.models import USAGE_COLUMNS, ContextItem, Message, MessagePart, StreamJournal
from sessions_app.ownership import owned_by
from sessions_app.record import hub
from sessions_app.record.branch_queries import STRETCHES_A_STATEMENT, in_stretches, rows_on
from sessions_app.search.index import Text, texts_of_part, with_words

# The types that are a JSON object in ``content``, without what is as it is by default; and the types of its values.
MOST_IDS = 20_000  # SQLite allows 32,766 variables in one statement
_AS_JSON = (
    *(FileRefPart, CompactionMarkerPart, StepStartPart, StepFinishPart),
    *(ImagePart, AudioPart, DocumentPart, CitationPart),
)
JSON_TYPES: dict[str, type[Part]] = {kind.type: kind for kind in _AS_JSON}
_JSON_VALUES = {
    kind.type: {field.name: {"str": str, "int": int}[str(field.type)] for field in fields(kind)} for kind in _AS_JSON
}
_TOOL_STATES = {state.value: state for state in ToolState}
# The order in which ``part_of`` reads a row.
PART_COLUMNS = (
    *("id", "part_index", "part_type", "token_estimate", "output_token_estimate", "content", "label"),
    *("tool_name", "tool_call_id", "tool_input", "tool_state", "output", "error_message"),
    *("started_at", "completed_at", "compacted_at", "decision_note", "late_output"),
)
_CALL = PART_COLUMNS.index("tool_name")  # and what follows it
# The order in which ``messages_of`` reads a message.
MESSAGE_COLUMNS = ("id", "seq", "turn_id", "role", "is_summary", "created_at")
_PART = len(MESSAGE_COLUMNS)
_END = _PART + len(PART_COLUMNS)
_STREAMED = {part.type for part in (TextPart, ReasoningPart, RefusalPart)}  # what followers are sent piece by piece
_NO_TEXTS = dict.fromkeys(("id", "content", "label", "tool_name", "tool_input", "output", "error_message"), "")
_OPEN_STATES = ", ".join(["%s"] * len(UNANSWERED_STATES))
_OPEN = (
    "SELECT 1 FROM model_calls WHERE turn_id = %s AND state = 'running'"
    " UNION ALL SELECT 1 FROM messages WHERE turn_id = %s AND role = 'assistant' AND finalized_at IS NULL"
    " UNION ALL SELECT 1 FROM messages m JOIN message_parts p ON p.message_id = m.id"
    f" WHERE m.turn_id = %s AND p.part_type = 'tool' AND p.tool_state IN ({_OPEN_STATES}) LIMIT 1"
)
_ITEM = ContextItem.objects.filter(session_id=OuterRef("session_id"), item_id=OuterRef("message_id"))


def usage_of(row: Any) -> UsageRecord:
    return record_of(UsageRecord, row)


def usage_columns(usage: UsageRecord) -> dict[str, Any]:
    return {column: getattr(usage, column) for column in USAGE_COLUMNS}


def end_columns(end: MessageEnd) -> dict[str, Any]:
    return {
        "finish_reason": end.finish_reason,
        "outcome": end.outcome,
        "error_code": end.error_code,
        "error_message": end.error_message,
        **usage_columns(end.usage),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPart:
    """The columns of a part, encoded, and its findable texts."""

    columns: dict[str, Any]
    texts: tuple[Text, ...]

    def texts_of(self, part_id: str, message_seq: int) -> list[Text]:
        return [text._replace(source_id=part_id, first_seq=message_seq, last_seq=message_seq) for text in self.texts]


def prepare_parts(parts: Iterable[Part | PreparedPart]) -> list[PreparedPart]:
    """Prepare parts for writing before a session's lock is taken: encode them, count their tokens, extract their words.

    Under the lock all other writers wait, on SQLite those of the whole site. Store functions prepare plain parts
    themselves; a prepared one is returned as it is.
    """
    return [part if isinstance(part, PreparedPart) else prepare_part(part) for part in parts]


def prepare_part(part: Part) -> PreparedPart:
    # A tool's result is counted in a separate column, because it comes later and may become a tombstone.
    tokens = estimate_call(part) if isinstance(part, ToolPart) else estimate_part(part)
    columns = {"part_type": part.type, "token_estimate": tokens} | _columns_of(part)
    texts = texts_of_part(SimpleNamespace(**_NO_TEXTS | columns), 0)
    return PreparedPart(columns=columns, texts=tuple(map(with_words, texts)))


def _columns_of(part: Part) -> dict[str, Any]:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return {"content": encode_text(part.text)}
        case DataPart():
            return {"content": encode_text(part.text), "label": _label(part.label)}
        case PatchPart():
            return {"content": encode_text(part.unified_diff), "label": _label(",".join(part.files_changed))}
        case ToolPart():
            is_open = part.state in UNANSWERED_STATES
            return _call_columns(part) | {
                "tool_state": part.state.value,
                "started_at": part.started_at,
                "completed_at": part.completed_at,
                "compacted_at": part.compacted_at,
                "decision_note": part.decision_note and encode_text(part.decision_note),
                "late_output": part.late_output and encode_text(part.late_output),
                "output_token_estimate": None if is_open else estimate_text(part.output or part.error or ""),
            }
        case ProviderToolPart():
            return _call_columns(part) | {"content": encode_text(part.data), "label": _label(part.provider)}
        case ProviderPart():
            return {"content": encode_text(part.data), "label": _label(part.write_label())}
        case UnknownPart():
            return {"content": encode_text(part.data), "label": _label(part.label)}
        case MediaPart() | CitationPart() | FileRefPart() | CompactionMarkerPart() | StepStartPart() | StepFinishPart():
            said = {field.name: (getattr(part, field.name), field.default) for field in fields(part)}
            values = {name: value for name, (value, default) in said.items() if value != default}
            return {"content": encode_text(json.dumps(values, ensure_ascii=False))}
        case _:
            assert_never(part)


def _label(text: str) -> str:
    return encode_text(text)[:200]


def _call_columns(part: ToolPart | ProviderToolPart) -> dict[str, Any]:
    return {
        "tool_name": _label(part.tool_name),
        "tool_call_id": _label(part.tool_call_id),
        "tool_input": encode_text(part.input),
        "output": part.output and encode_text(part.output),
        "error_message": part.error and encode_text(part.error),
    }


def part_of(columns: Sequence[Any]) -> StoredPart:
    """Return the part of a row; ``columns`` are ``PART_COLUMNS`` (``tables.select_columns``)."""
    id, index, part_type, tokens, result_tokens, content, label = columns[:_CALL]
    if part_type == "text":  # nearly every part is one or the other
        part: Part = TextPart(text=decode_text(content))
    elif part_type == "tool":
        name, call_id, input, state, output, error, started_at, completed_at, compacted_at, note, late = columns[_CALL:]
        part = ToolPart(
            tool_name=decode_text(name),
            tool_call_id=decode_text(call_id),
            input=decode_text(input),
            output=output and decode_text(output),
            error=error and decode_text(error),
            state=_TOOL_STATES[state],
            compacted_at=compacted_at and time_of(compacted_at),
            started_at=started_at and time_of(started_at),
            completed_at=completed_at and time_of(completed_at),
            decision_note=note and decode_text(note),
            late_output=late and decode_text(late),
        )
    elif part_type == "reasoning":
        part = ReasoningPart(text=decode_text(content))
    elif part_type == "provider_tool":
        name, call_id, input, _, output, error = columns[_CALL : _CALL + 6]
        part = ProviderToolPart(
            provider=decode_text(label),
            tool_name=decode_text(name),
            tool_call_id=decode_text(call_id),
            input=decode_text(input),
            output=output and decode_text(output),
            error=error and decode_text(error),
            data=decode_text(content),
        )
    else:
        text, label = decode_text(content), decode_text(label)
        if part_type == "data":
            part = DataPart(label=label, text=text)
        elif part_type == "patch":
            part = PatchPart(unified_diff=text, files_changed=tuple(name for name in label.split(",") if name))
        elif part_type == "refusal":
            part = RefusalPart(text=text)
        elif part_type == "provider":
            part = ProviderPart.read_label(label, text)
        else:
            part = read_json_part(part_type, text) or UnknownPart(type=part_type, data=text, label=label)
    return StoredPart(id=id, index=index, part=part, token_estimate=tokens + (result_tokens or 0))


def read_json_part(part_type: str, content: str) -> Part | None:
    """Return a part that is stored as JSON; ``None`` if this version does not know all that is in it."""
    known = _JSON_VALUES.get(part_type)
    try:
        values = json.loads(content) if known else None
    except (ValueError, RecursionError):
        return None
    if (
        known is None
        or not isinstance(values, dict)
        or any(type(values[name]) is not known.get(name) for name in values)
    ):
        return None
    try:
        return JSON_TYPES[part_type](**values)
    except TypeError:  # something is missing
        return None


def messages_of(rows: Iterable[Sequence[Any]]) -> Iterator[StoredMessage]:
    """Yield messages with their parts from joined rows: ``MESSAGE_COLUMNS``, then ``PART_COLUMNS``, then any others.

    The rows of a message are consecutive, in the order of its parts; a message without parts has one row.
    """
    for _, group in groupby(rows, key=itemgetter(0)):
        own = list(group)
        id, seq, turn_id, role, is_summary, created_at = own[0][:_PART]
        parts = tuple([part_of(row[_PART:_END]) for row in own if row[_PART] is not None])
        yield StoredMessage(
            id=id,
            seq=seq,
            turn_id=turn_id,
            role=role,
            parts=parts,
            created_at=time_of(created_at),
            is_summary=bool(is_summary),
            token_estimate=MESSAGE_FRAMING + sum([part.token_estimate for part in parts]),
        )


def load_messages(
    session_id: str,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int = 100,
    newest: bool = False,
    path: Path | None = None,
) -> list[StoredMessage]:
    """Return messages with parts, oldest first, in one query; with ``newest`` the last ones of the range.

    :param path: return only messages on this one; in a query for every so many stretches of it
    """
    if path is not None:
        stretches = list(path.within(after + 1, END if before is None else before - 1))
        return _load_on_path(session_id, stretches, limit=limit, newest=newest)
    until, values = ("", []) if before is None else (" AND seq < %s", [before])
    chosen = (
        f"SELECT * FROM messages WHERE session_id = %s AND seq > %s{until}"
        f" ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT %s"
    )
    return list(messages_of(fetch(_with_parts(f"({chosen})"), [session_id, after, *values, limit])))


def _load_on_path(session_id: str, stretches: Sequence[Stretch], *, limit: int, newest: bool) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    stretches = stretches[::-1] if newest else stretches
    for start in range(0, len(stretches), STRETCHES_A_STATEMENT):
        which, values = in_stretches(stretches[start : start + STRETCHES_A_STATEMENT], "seq")
        chosen = (
            f"SELECT * FROM messages WHERE session_id = %s AND {which}"
            f" ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT %s"
        )
        found += messages_of(fetch(_with_parts(f"({chosen})"), [session_id, *values, limit - len(found)]))
        if len(found) >= limit:
            break
    return sorted(found, key=attrgetter("seq"))


def newest_of_user(session_id: str, path: Path, *, last_seq: int, limit: int) -> list[StoredMessage]:
    """Return the last messages of the user on a path up to one, oldest first."""
    rows = Message.objects.filter(session_id=session_id, role="user").only("id")
    found = rows_on(rows, list(path.within(1, last_seq)), limit=limit, newest=True)
    return load_messages_by_ids([row.id for row in found], session_id=session_id) if found else []


def load_messages_since(message_id: str, *, session_id: str, limit: int = 100) -> list[StoredMessage]:
    """Return messages with parts strictly after this one, oldest first, in two queries.

    :raises MessageNotFoundError: the session has no such message.
    """
    return load_messages(session_id, after=seq_of_message(message_id, session_id=session_id), limit=limit)


def seq_of_message(message_id: str, *, session_id: str) -> int:
    """:raises MessageNotFoundError: the session has no such message."""
    rows = Message.objects.filter(id=message_id, session_id=session_id)
    seq = rows.values_list("seq", flat=True).first()
    if seq is None:
        raise MessageNotFoundError(message_id=message_id)
    return int(seq)


def seqs_of_session(session_id: str) -> dict[str, int]:
    return dict(Message.objects.filter(session_id=session_id).values_list("id", "seq"))


def seqs_of_messages(ids: Collection[str], *, session_id: str) -> dict[str, int]:
    """Return the numbers of the messages among ``ids`` that the session has."""
    rows = Message.objects.filter(session_id=session_id)
    if len(ids) <= MOST_IDS:
        rows = rows.filter(id__in=ids)
    return {id: seq for id, seq in rows.values_list("id", "seq") if id in ids}


def places_of_turns(turn_ids: Sequence[str], *, session_id: str) -> dict[str, list[tuple[int, int]]]:
    """Return the branch and number of each message of some turns, in order; one query.

    :raises TurnNotFoundError: one of them is not in the session.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    rows = Message.objects.filter(session_id=session_id, turn_id__in=[encode_text(id) for id in turn_ids])
    for turn_id, branch, seq in rows.order_by("seq").values_list("turn_id", "branch", "seq"):
        found.setdefault(turn_id, []).append((branch, seq))
    missing = next((id for id in turn_ids if id not in found), None)
    if missing is not None:
        raise TurnNotFoundError(turn_id=missing)
    return found


def load_imported(session_ids: Sequence[str]) -> list[tuple[str, str, str, int, int]]:
    """Return the turn's key, the external id, the session, the branch and the number of each message of an import."""
    rows = Message.objects.filter(session_id__in=session_ids, turn__idempotency_key__isnull=False).order_by("seq")
    return list(rows.values_list("turn__idempotency_key", "external_id", "session_id", "branch", "seq"))


def seqs_on_path(session_id: str, path: Path | None, *, last_seq: int = END) -> list[int]:
    rows = Message.objects.filter(session_id=session_id, seq__lte=last_seq)
    places = rows.order_by("seq").values_list("branch", "seq")
    return [seq for branch, seq in places if path is None or path.has(branch, seq)]


def load_message(message_id: str, *, session_id: str) -> StoredMessage:
    """:raises MessageNotFoundError: the session has no such message."""
    return load_messages_by_ids([message_id], session_id=session_id)[0]


def find_reasoning(turn_ids: Collection[str], *, owner_id: int) -> list[ProviderPart]:
    """Return what models encrypted of their reasoning in these turns of a person, as OpenAI's Responses do."""
    rows = MessagePart.objects.filter(owned_by(owner_id, "session__"), message__turn_id__in=turn_ids)
    rows = rows.filter(part_type=ProviderPart.type, session__deleted_at__isnull=True)
    parts = [ProviderPart.read_label(label, content) for label, content in rows.values_list("label", "content")]
    return [part for part in parts if part.kind == "reasoning"]


def load_part(part_id: str, *, session_id: str) -> StoredPart:
    """:raises PartNotFoundError: the session has no such part."""
    columns = select_columns(MessagePart, "p", PART_COLUMNS)
    rows = fetch(
        f"SELECT {columns} FROM message_parts p WHERE p.id = %s AND p.session_id = %s",
        [encode_text(part_id), session_id],
    )
    if not rows:
        raise PartNotFoundError(part_id=part_id)
    return part_of(rows[0])


def load_messages_by_ids(ids: Sequence[str], *, session_id: str) -> list[StoredMessage]:
    """Return messages of a session with parts in the order of ``ids``, in one query per thousand.

    :raises MessageNotFoundError: one of them is not in the session.
    """
    found: dict[str, StoredMessage] = {}
    for start in range(0, len(ids), 1000):  # SQLite allows 32,766 variables in one statement
        wanted = [encode_text(id) for id in ids[start : start + 1000]]
        chosen = f"(SELECT * FROM messages WHERE session_id = %s AND id IN ({', '.join(['%s'] * len(wanted))}))"
        found |= {message.id: message for message in messages_of(fetch(_with_parts(chosen), [session_id, *wanted]))}
    missing = next((id for id in ids if id not in found), None)
    if missing is not None:
        raise MessageNotFoundError(message_id=missing)
    return [found[id] for id in ids]


def load_message_rows(session_id: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return the rows of messages by id, for endpoints that show finish reason, usage, outcome and error."""
    found: dict[str, Any] = {}
    for start in range(0, len(ids), 1000):
        found |= Message.objects.filter(session_id=session_id).in_bulk(ids[start : start + 1000])
    return found


def load_part_text(part_id: str) -> LiveText:
    row = MessagePart.objects.only("message_id", "part_index", "part_type", "content").get(id=part_id)
    return LiveText(message_id=row.message_id, part_index=row.part_index, part_type=row.part_type, text=row.content)


def find_part_of_call(session_id: str, tool_call_id: str) -> str:
    """Return the part of a tool call; empty if there is none.

    Of several with this id (some models count anew with each call) it is the newest that left the context, else the newest.
    """
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", tool_call_id=tool_call_id)
    newest = rows.order_by(F("compacted_seq").desc(nulls_last=True), "-message__seq", "-part_index")
    return newest.values_list("id", flat=True).first() or ""


def find_tool_part(part_id: str, *, session_id: str) -> str:
    """:raises PartNotFoundError: the session has no such tool call."""
    rows = MessagePart.objects.filter(id=part_id, session_id=session_id, part_type="tool")
    state = rows.values_list("tool_state", flat=True).first()
    if state is None:
        raise PartNotFoundError(part_id=part_id)
    return str(state)


def find_calls(session_id: str, tool_call_id: str, *, state: ToolState) -> list[str]:
    """Return the tool parts in this state whose model called them so, the newest first."""
    rows = MessagePart.objects.filter(
        session_id=session_id, part_type="tool", tool_call_id=encode_text(tool_call_id), tool_state=state
    )
    return list(rows.order_by("-message__seq", "-part_index").values_list("id", flat=True))


def end_of_request(turn_id: str) -> tuple[int, int] | None:
    """Return the number and the branch after which the answers of a turn stand; ``None`` for a turn without messages."""
    rows = list(Message.objects.filter(turn_id=turn_id).order_by("seq").values_list("seq", "branch", "role"))
    if not rows:
        return None
    first = next((seq for seq, _, role in rows if role == "assistant"), rows[-1][0] + 1)
    return first - 1, rows[0][1]


def find_answer(session_ids: Collection[str], data: str) -> tuple[str, int, int] | None:
    """Return the session, number and branch of the newest answer in these sessions that has an opaque part of this content."""
    parts = MessagePart.objects.filter(session_id__in=session_ids, part_type=ProviderPart.type, content=data)
    return parts.order_by("-id").values_list("session_id", "message__seq", "message__branch").first()


def tombstone_seqs(session_id: str, message_id: str) -> dict[int, list[str]]:
    rows = MessagePart.objects.filter(session_id=session_id, message_id=message_id, compacted_seq__isnull=False)
    found: dict[int, list[str]] = defaultdict(list)
    for seq, part_id in rows.order_by("compacted_seq", "part_index").values_list("compacted_seq", "id"):
        found[seq or 0].append(part_id)
    return found


def unfinished_messages(turn_id: str) -> list[str]:
    rows = Message.objects.filter(turn_id=turn_id, role="assistant", finalized_at__isnull=True)
    return list(rows.order_by("seq").values_list("id", flat=True))


def leaves_open(turn_id: str) -> bool:
    """Return whether a turn has any call, message or tool that has not ended, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [turn_id, turn_id, turn_id, *UNANSWERED_STATES])
        return cursor.fetchone() is not None


def unanswered_tools(turn_id: str) -> list[str]:
    rows = MessagePart.objects.filter(message__turn_id=turn_id, part_type="tool", tool_state__in=UNANSWERED_STATES)
    return list(rows.order_by("message__seq", "part_index").values_list("id", flat=True))


def _with_parts(messages: str) -> str:
    """Return the query for ``messages_of``; ``messages`` is a table, or a query in parentheses."""
    return (
        f"SELECT {select_columns(Message, 'm', MESSAGE_COLUMNS)}, {select_columns(MessagePart, 'p', PART_COLUMNS)}"
        f" FROM {messages} m LEFT JOIN message_parts p ON p.message_id = m.id ORDER BY m.seq, p.part_index"
    )


def places_of_parts(part_ids: Collection[str]) -> dict[str, PartPlace]:
    """Return where parts of any sessions stand (in the context, or out of it and since when), by id, in one query."""
    if not part_ids:
        return {}
    rows = MessagePart.objects.filter(id__in=list(part_ids)).annotate(
        left_seq=Subquery(_ITEM.values("removed_seq")[:1])
    )
    placed = rows.annotate(left_turn=_turn_at("left_seq"), pruned_turn=_turn_at("compacted_seq"))
    columns = placed.values_list("id", "message__created_at", "tool_name", "left_turn", "pruned_turn")
    return {
        id: PartPlace(said_at=said_at, tool_name=name, left_turn=left, pruned_turn=pruned)
        for id, said_at, name, left, pruned in columns
    }


def first_seq_of_turn(turn_id: str, *, session_id: str) -> int | None:
    """Return the number of a turn's first message, or ``None`` for a turn without messages."""
    first: int | None = Message.objects.filter(turn_id=turn_id, session_id=session_id).aggregate(first=Min("seq"))[
        "first"
    ]
    return first


def find_message_at(session_id: str, seq: int) -> str | None:
    """Return the id of a session's message by its number."""
    return Message.objects.filter(session_id=session_id, seq=seq).values_list("id", flat=True).first()


def _turn_at(event_seq: str) -> Subquery:
    """Return the number of the turn that had the session at an event: the one whose message came into the context last."""
    newest = ContextItem.objects.filter(
        session_id=OuterRef(OuterRef("session_id")), item_type="message", added_seq__lte=OuterRef(OuterRef(event_seq))
    ).order_by("-added_seq")
    rows: QuerySet[Message] = Message.objects.filter(id=Subquery(newest.values("item_id")[:1]))
    return Subquery(rows.values("turn__seq")[:1])


def load_live_texts(session_id: str) -> list[LiveText]:
    """Return the texts of the running answer so far: from this process if it runs here, otherwise from the journal."""
    here = hub.hub.texts(session_id)
    return [text for text in journal_texts(session_id) if text.part_type in _STREAMED] if here is None else here


def journal_texts(session_id: str, *, message_id: str | None = None) -> list[LiveText]:
    rows = StreamJournal.objects.filter(session_id=session_id)
    if message_id is not None:
        rows = rows.filter(message_id=message_id)
    pieces: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for row in rows.order_by("message_id", "part_index", "offset"):
        pieces[row.message_id, row.part_index, row.part_type].append(row.text)
    return [
        LiveText(message_id=id, part_index=index, part_type=kind, text="".join(texts))
        for (id, index, kind), texts in pieces.items()
    ]


_COLUMNS = {
    "arguments": F("tool_input"),
    "result": Coalesce("output", "late_output"),
    "error": F("error_message"),
    "state": F("tool_state"),
    "part_id": F("id"),
    "seq": F("message__seq"),
    "turn_id": F("message__turn_id"),
}
_OWN = ("tool_call_id", "tool_name", "part_index", "message_id", "started_at", "completed_at")


def list_interactions(
    session_id: str,
    *,
    turn_id: str | None = None,
    tool: str | None = None,
    status: InteractionStatus | None = None,
    after: tuple[int, int] | None = None,
    limit: int = 100,
) -> list[ToolInteraction]:
    """Return tool calls with their results in the order of the record, in one query.

    :param after: number of the message and place in it of a call: return only later ones
    """
    rows = MessagePart.objects.filter(session_id=session_id, message__session_id=session_id, part_type="tool")
    if turn_id is not None:
        rows = rows.filter(message__turn_id=turn_id)
    if tool is not None:
        rows = rows.filter(tool_name=tool)
    if status is not None:
        rows = rows.filter(tool_state__in=STATES[status])
    if after is not None:
        seq, index = after
        rows = rows.filter(Q(message__seq__gt=seq) | Q(message__seq=seq, part_index__gt=index))
    found = rows.order_by("message__seq", "part_index").values(*_OWN, **_COLUMNS)
    return [ToolInteraction(**row) for row in found[:limit]]

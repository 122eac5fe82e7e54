"""Reads of turns, of what suspended ones wait for, of model calls and of usage.

Pages read calls as headings, without manifests, however long a session is.
"""

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from mnesis_core.errors import CallNotFoundError, TurnNotFoundError
from mnesis_core.llm.tokens import read_measure
from mnesis_core.messages import ToolState
from mnesis_core.records import GATEWAY, CallRecord, TurnRecord, TurnState, UsageRecord, Waiting, WaitsFor, record_of
from mnesis_core.spending import Spent, highest_of
from mnesis_core.turns.gateway import Difference, restored
from mnesis_core.turns.options import read_options
from mnesis_core.turns.questions import ASK_USER
from mnesis_core.values import dataclass
from sessions_app.database.tables import CompiledQuery, Param, fetch
from sessions_app.models import USAGE_COLUMNS, Message, MessagePart, ModelCall, PromptText, Session, Turn
from sessions_app.ownership import owned_by
from sessions_app.record.lease import expired, is_abandoned
from sessions_app.record.message_queries import usage_of

DIGESTS_A_STATEMENT = 500
LONGEST_CHAIN = 1_000  # calls that the bytes of one rest on
_BY_ID = CompiledQuery(lambda: Turn.objects.filter(id=Param("id")))
_HEADED = (
    *("id", "turn_id", "message_id", "purpose", "model", "state", "outcome", "error_code", "error_message", "attempts"),
    *("context_seq", "estimated_tokens", "created_at", "ended_at", *USAGE_COLUMNS),
)


def load_turn(turn_id: str, *, session_id: str) -> TurnRecord:
    """:raises TurnNotFoundError: the session has no such turn."""
    row = _BY_ID.one(id=turn_id)
    if row is None or row.session_id != session_id:
        raise TurnNotFoundError(turn_id=turn_id)
    return _turns([row])[0]


def load_turns(turn_ids: Sequence[str], *, session_id: str) -> dict[str, TurnRecord]:
    """:raises TurnNotFoundError: one of them is not in the session."""
    found: dict[str, TurnRecord] = {}
    for start in range(0, len(turn_ids), 1000):  # SQLite allows 32,766 variables in one statement
        wanted = turn_ids[start : start + 1000]
        found |= {turn.id: turn for turn in _turns(list(Turn.objects.filter(session_id=session_id, id__in=wanted)))}
    missing = next((id for id in turn_ids if id not in found), None)
    if missing is not None:
        raise TurnNotFoundError(turn_id=missing)
    return found


def list_turns(session_id: str, *, before_seq: int | None = None, limit: int = 50) -> list[TurnRecord]:
    rows = Turn.objects.filter(session_id=session_id).order_by("-seq")
    if before_seq is not None:
        rows = rows.filter(seq__lt=before_seq)
    return _turns(list(rows[:limit]))


def newest_model(session_id: str) -> str:
    newest = Turn.objects.filter(session_id=session_id).order_by("-seq").values_list("model", flat=True).first()
    return newest or ""


def open_turn(session_id: str) -> tuple[str, str] | None:
    """Return the id and state of the turn that has the session now, running or suspended."""
    return Turn.objects.filter(session_id=session_id, ended_at__isnull=True).values_list("id", "state").first()


def is_interrupted(turn_id: str) -> bool:
    return Turn.objects.filter(id=turn_id, interrupt_requested_at__isnull=False).exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredTurn:
    session_id: str
    turn_id: str
    lease_owner: str
    lease_expires_at: datetime
    actor: str  # who asked for the turn

    def is_left(self, now: datetime) -> bool:
        """Return whether the process of the turn is gone, as far as that can be known here."""
        return is_abandoned(self.lease_owner, expired_at=self.lease_expires_at, now=now)


def expired_turns(*, session_id: str | None = None) -> list[ExpiredTurn]:
    """Return running turns whose lease ran out, the oldest first, a thousand at the most."""
    rows = Turn.objects.filter(expired(timezone.now()), state="running").order_by("lease_expires_at")
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    found = rows.values_list("session_id", "id", "lease_owner", "lease_expires_at", "actor")[:1000]
    return [
        ExpiredTurn(session_id=session, turn_id=turn, lease_owner=owner, lease_expires_at=expired, actor=actor)
        for session, turn, owner, expired, actor in found
    ]


def interrupted_turns(turn_ids: Collection[str]) -> set[str]:
    rows = Turn.objects.filter(id__in=turn_ids, state="running", interrupt_requested_at__isnull=False)
    return set(rows.values_list("id", flat=True))


def find_turn_by_key(session_id: str, idempotency_key: str) -> tuple[str, str] | None:
    """Return the id and request digest of the turn that this idempotency key, as stored, started."""
    rows = Turn.objects.filter(session_id=session_id, idempotency_key=idempotency_key)
    return rows.values_list("id", "request_digest").first()


def find_turn_of_part(part_id: str, *, owner_id: int) -> tuple[str, str] | None:
    rows = MessagePart.objects.filter(owned_by(owner_id, "session__"), id=part_id, part_type="tool")
    return rows.filter(session__deleted_at__isnull=True).values_list("session_id", "message__turn_id").first()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """A turn that began with a request through the gateway, by the digest of all that the request said."""

    digest: str
    turn_id: str
    session_id: str


def find_beginnings(
    digests: Sequence[str], *, owner_id: int, session_ids: Sequence[str] | None = None
) -> list[Beginning]:
    """Return the turns that began with the last of these digests that any turn began with, the newest first, 20 at most.

    :param session_ids: look in these sessions only
    """
    rows = Turn.objects.filter(owned_by(owner_id, "session__"), origin=GATEWAY, session__deleted_at__isnull=True)
    if session_ids is not None:
        rows = rows.filter(session_id__in=session_ids)
    for end in range(len(digests), 0, -DIGESTS_A_STATEMENT):
        some = digests[max(0, end - DIGESTS_A_STATEMENT) : end]
        there = set(rows.filter(request_digest__in=some).order_by().values_list("request_digest", flat=True).distinct())
        last = next((digest for digest in reversed(some) if digest in there), None)
        if last is not None:
            newest = rows.filter(request_digest=last).order_by("-created_at", "-id").values_list("id", "session_id")
            return [Beginning(digest=last, turn_id=id, session_id=session_id) for id, session_id in newest[:20]]
    return []


def _turns(rows: list[Turn]) -> list[TurnRecord]:
    messages: dict[str, list[str]] = defaultdict(list)
    places = ", ".join(["%s"] * len(rows))
    found = f"SELECT turn_id, id FROM messages WHERE turn_id IN ({places}) ORDER BY seq"
    for turn_id, message_id in fetch(found, [row.id for row in rows]) if rows else []:
        messages[turn_id].append(message_id)
    return [
        record_of(
            TurnRecord,
            row,
            message_ids=tuple(messages[row.id]),
            usage=usage_of(row),
            waits_for=_waits_for(row) if row.state == TurnState.SUSPENDED else (),
        )
        for row in rows
    ]


def _waits_for(row: Turn) -> tuple[Waiting, ...]:
    """Return the tool calls that a suspended turn waits for; started ones have a result or an approval."""
    callers = read_options(row.options).tool_names
    rows = MessagePart.objects.filter(message__turn_id=row.id, part_type="tool", tool_state=ToolState.PENDING)
    columns = rows.order_by("message__seq", "part_index").values_list("id", "tool_call_id", "tool_name", "tool_input")
    waiting: dict[str, Waiting] = {}
    for id, own_id, name, input in columns:
        # As in a prompt, a call without its own id gets the id of its part.
        call_id = own_id if own_id and own_id not in waiting else id
        reason = _reason(name, None if row.origin == GATEWAY else callers)
        waiting[call_id] = Waiting(part_id=id, tool_call_id=call_id, tool_name=name, input=input, reason=reason)
    return tuple(waiting.values())


def reasons_to_wait(turn_ids: Sequence[str]) -> dict[str, WaitsFor]:
    """Return what suspended turns wait for, a person before a caller if they wait for both, in two queries."""
    rows = Turn.objects.filter(id__in=list(turn_ids)).values_list("id", "options", "origin")
    callers = {id: None if origin == GATEWAY else read_options(options).tool_names for id, options, origin in rows}
    waiting = MessagePart.objects.filter(
        message__turn_id__in=list(callers), part_type="tool", tool_state=ToolState.PENDING
    )
    reasons: dict[str, WaitsFor] = {}
    for turn_id, name in waiting.values_list("message__turn_id", "tool_name"):
        reason = _reason(name, callers[turn_id])
        if reason is not WaitsFor.CALLER:
            reasons[turn_id] = reason
        reasons.setdefault(turn_id, reason)
    return reasons


def _reason(tool_name: str, callers: Set[str] | None) -> WaitsFor:
    """:param callers: the names of the tools that the caller runs; ``None``: all"""
    if callers is None or tool_name in callers:
        return WaitsFor.CALLER
    return WaitsFor.ANSWER if tool_name == ASK_USER else WaitsFor.APPROVAL


def turn_seq_at(session_id: str, moment: datetime) -> int:
    """Return the seq of the newest turn that had begun by then, or 0."""
    rows = Turn.objects.filter(session_id=session_id, created_at__lte=moment)
    return rows.order_by("-seq").values_list("seq", flat=True).first() or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHeading:
    id: str
    turn_id: str | None
    message_id: str | None
    purpose: str
    model: str
    state: str
    outcome: str | None
    error_code: str | None
    error_message: str | None
    attempts: int | None
    context_seq: int
    estimated_tokens: int
    created_at: datetime
    ended_at: datetime | None
    usage: UsageRecord

    @property
    def seconds(self) -> float | None:
        return None if self.ended_at is None else (self.ended_at - self.created_at).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The part of the window that the prompt of a turn's call took, in the model's own tokens as far as these are known."""

    id: str
    context_seq: int
    used: int  # the estimate, corrected as it was when the call was made
    tools: int
    ratio: float  # the model's own counts to the estimates


class CallPlace(NamedTuple):
    """A call by its number among all calls of its session, and by the message that it wrote, 0 for none."""

    number: int
    id: str
    purpose: str
    created_at: datetime
    seq: int
    branch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """A filter of a session's calls; an empty field matches all of them."""

    purpose: str = ""
    state: str = ""
    model: str = ""


def usage_of_session(*session_ids: str) -> UsageRecord:
    return sum_usage(Turn.objects.filter(session_id__in=session_ids))


def usage_of_files(*session_ids: str) -> UsageRecord:
    """Return what models that describe files have used in these sessions together, in one query."""
    return sum_usage(ModelCall.objects.filter(session_id__in=session_ids, turn=None, purpose="file"))


def sum_usage(rows: QuerySet[Any]) -> UsageRecord:
    names = ("tokens_input", "tokens_output", "cost_micros")
    sums = rows.aggregate(**{name: Sum(name, default=0) for name in names})
    return UsageRecord(**sums)


def begun_before(created_at: datetime, id: str) -> Q:
    """Match rows that began before another one, by time and id, since times alone may be equal."""
    return Q(created_at__lt=created_at) | Q(created_at=created_at, id__lt=id)


def load_call(call_id: str, *, owner_id: int | None = None) -> CallRecord:
    """:raises CallNotFoundError: there is no such call, or it belongs to a person other than ``owner_id``."""
    rows = ModelCall.objects.filter(id=call_id)
    if owner_id is not None:
        rows = rows.filter(owned_by(owner_id, "session__"), session__deleted_at__isnull=True)
    row = rows.first()
    if row is None:
        raise CallNotFoundError(call_id=call_id)
    return _call(row)


def stop_sequence_of(session_id: str, message_id: str) -> str | None:
    """Return the stop text at which the call that an answer came from ended, if its provider said so."""
    rows = _calls(session_id).filter(message_id=message_id).order_by("-created_at", "-id")
    return rows.values_list("stop_sequence", flat=True).first()


def count_kept_for_an_hour(session_id: str, message_ids: Sequence[str]) -> int:
    """Return how many tokens the calls that answers came from wrote to the cache for an hour."""
    rows = _calls(session_id).filter(message_id__in=message_ids)
    return rows.aggregate(tokens=Sum("tokens_cache_write_1h"))["tokens"] or 0


def load_last_body(session_id: str) -> tuple[str, str, int] | None:
    """Return the newest call through the gateway of a session, its bytes as text, and how many calls these rest on."""
    row = _calls(session_id).filter(purpose=GATEWAY).order_by("-created_at", "-id").first()
    if row is None:
        return None
    try:
        text = load_body(_call(row))
    except (ValueError, CallNotFoundError):
        return None
    return row.id, text, row.parameters["body"].get("depth", 0)


def load_body(call: CallRecord) -> str:
    """Return the body that a call through the gateway was sent, as text.

    :raises ValueError: something of it was not kept.
    :raises CallNotFoundError: a call that it rests on is not there.
    """
    chain: list[tuple[int, int, str]] = []
    while True:
        kept, texts = call.parameters.get("body"), call.parameters.get("texts")
        if not isinstance(kept, dict) or not isinstance(texts, dict) or len(chain) > LONGEST_CHAIN:
            raise ValueError("the bytes of then were not kept")
        first, last, after = kept.get("first"), kept.get("last"), kept.get("after")
        if type(first) is not int or type(last) is not int or min(first, last) < 0:
            raise ValueError("what was kept of the bytes of then cannot be read")
        chain.append((first, last, str(texts.get("body"))))
        if after is None:
            break
        before, call = call, load_call(str(after))
        if call.session_id != before.session_id:
            raise ValueError("the bytes of then rest on another session")
    texts = load_prompt_texts(call.session_id, {digest for _, _, digest in chain})
    body = ""
    for first, last, digest in reversed(chain):
        if digest not in texts or first + last > len(body):
            raise ValueError("a part of the bytes of then was not kept")
        body = restored(Difference(first=first, last=last, between=texts[digest]), body)
    return body


def load_call_before(call: CallRecord) -> CallRecord | None:
    rows = _calls(call.session_id).filter(begun_before(call.created_at, call.id), purpose=call.purpose)
    row = rows.order_by("-created_at", "-id").first()
    return None if row is None else _call(row)


def load_prompt_texts(session_id: str, digests: Collection[str]) -> dict[str, str]:
    """Return texts that prompts of a session were made with, by digest; those that were not kept are absent."""
    rows = PromptText.objects.filter(session_id=session_id, digest__in=list(digests))
    return dict(rows.values_list("digest", "content"))


def list_calls(session_id: str, *, limit: int = 100, before: tuple[datetime, str] | None = None) -> list[CallRecord]:
    """Return model calls of a session, newest first, after the cursor ``before`` (time and id)."""
    rows = _calls(session_id)
    if before is not None:
        rows = rows.filter(begun_before(*before))
    return [_call(row) for row in rows.order_by("-created_at", "-id")[:limit]]


def running_calls(turn_id: str) -> list[str]:
    return list(ModelCall.objects.filter(turn_id=turn_id, state="running").values_list("id", flat=True))


def running_summary_calls(session_id: str, run_id: str) -> list[str]:
    return _running_summary_calls(session_id, parameters__run_id=run_id)


def running_preview_calls(session_id: str, *, before: datetime) -> list[str]:
    return _running_summary_calls(session_id, parameters__run_id=None, created_at__lt=before)


def running_reflection_calls(session_id: str, reflection_id: str) -> list[str]:
    return _running_summary_calls(session_id, parameters__reflection_id=reflection_id)


def running_file_calls(session_id: str, file_id: str) -> dict[str, datetime]:
    rows = _calls(session_id).filter(turn__isnull=True, purpose="file", state="running", parameters__file_id=file_id)
    return dict(rows.order_by("created_at", "id").values_list("id", "created_at"))


def _running_summary_calls(session_id: str, **where: Any) -> list[str]:
    rows = _calls(session_id).filter(turn__isnull=True, purpose="summary", state="running", **where)
    return list(rows.order_by("created_at", "id").values_list("id", flat=True))


def _call(row: ModelCall) -> CallRecord:
    return record_of(CallRecord, row, usage=usage_of(row))


def most_of_calls(call_ids: Collection[str]) -> Spent:
    rows = ModelCall.objects.filter(id__in=list(call_ids)).values_list("parameters", flat=True)
    most = [(parameters.get("most_tokens") or 0, parameters.get("most_micros")) for parameters in rows]
    return sum((highest_of(tokens, micros) for tokens, micros in most), Spent())


def list_headings(session_id: str, *, chosen: CallFilter, before: str = "", limit: int) -> list[CallHeading]:
    """Return calls of a session, newest first, before the call ``before``, which is ignored if the session has no such call."""
    wanted = {"purpose": chosen.purpose, "state": chosen.state, "model": chosen.model}
    rows = _calls(session_id).filter(**{name: value for name, value in wanted.items() if value})
    place = _calls(session_id).filter(id=before).values_list("created_at", "id").first() if before else None
    if place is not None:
        rows = rows.filter(begun_before(*place))
    return [_heading(row) for row in rows.order_by("-created_at", "-id").only(*_HEADED)[:limit]]


def load_headings(session_id: str, ids: Sequence[str]) -> list[CallHeading]:
    """Return those of these calls that belong to the session, oldest first."""
    rows = _calls(session_id).filter(id__in=list(ids)).only(*_HEADED)
    return [_heading(row) for row in rows.order_by("created_at", "id")]


def numbers_of_calls(session_id: str, ids: Sequence[str]) -> dict[str, int]:
    """Return the position of each of these calls in its session, counted from 1, in one query."""
    if not ids:
        return {}
    places = ", ".join(["%s"] * len(ids))
    rows = fetch(
        "SELECT id, number FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY created_at, id) AS number FROM model_calls"
        f" WHERE session_id = %s) AS numbered WHERE id IN ({places})",
        [session_id, *ids],
    )
    return {id: int(number) for id, number in rows}


def models_of_calls(session_id: str) -> list[str]:
    return list(_calls(session_id).order_by("model").values_list("model", flat=True).distinct())


def calls_beside(call: CallRecord) -> tuple[str, str]:
    """Return the ids of the session's calls before and after this one; empty if there is none."""
    rows, place = _calls(call.session_id), (call.created_at, call.id)
    before = rows.filter(begun_before(*place)).order_by("-created_at", "-id").values_list("id", flat=True).first()
    is_after = Q(created_at__gt=call.created_at) | Q(created_at=call.created_at, id__gt=call.id)
    after = rows.filter(is_after).order_by("created_at", "id").values_list("id", flat=True).first()
    return before or "", after or ""


def list_call_places(session_id: str) -> list[CallPlace]:
    """Return every call of a session, oldest first, in one query."""
    rows = _calls(session_id).order_by("created_at", "id")
    rows = rows.annotate(seq=Coalesce(F("message__seq"), 0), branch=Coalesce(F("message__branch"), 0))
    found = rows.values_list("id", "purpose", "created_at", "seq", "branch")
    return [CallPlace(number, *row) for number, row in enumerate(found, start=1)]


def list_turn_calls(session_id: str) -> list[tuple[str, int]]:
    """Return (id, estimated tokens) of every call of a turn, oldest first."""
    rows = _turn_calls(session_id).order_by("created_at", "id")
    return list(rows.values_list("id", "estimated_tokens"))


def count_turn_calls_until(call: CallRecord) -> int:
    rows = _turn_calls(call.session_id)
    return rows.filter(begun_before(call.created_at, call.id) | Q(id=call.id)).count()


def sizes_of_calls(session_id: str, ids: Sequence[str]) -> list[CallSize]:
    """Return the sizes of calls of turns in the order of ``ids``; unknown ids are left out."""
    rows = _calls(session_id).filter(id__in=list(ids))
    found = {}
    for row in rows.only("id", "model", "parameters", "estimated_tokens", "context_seq"):
        parameters = row.parameters if isinstance(row.parameters, dict) else {}
        measure = read_measure(parameters, model=row.model, estimated=row.estimated_tokens, reported=0)
        ratio = measure.calibration.ratio if measure.calibration else 1.0
        used = int(row.estimated_tokens * ratio)
        found[row.id] = CallSize(
            id=row.id, context_seq=row.context_seq, used=used, tools=measure.tool_tokens, ratio=ratio
        )
    return [found[id] for id in ids if id in found]


def call_of_message(session_id: str, message_id: str) -> CallHeading | None:
    rows = _turn_calls(session_id).filter(message_id=message_id)
    row = rows.order_by("-created_at", "-id").only(*_HEADED).first()
    return None if row is None else _heading(row)


def calls_between(session_id: str, first_seq: int, end_seq: int | None) -> tuple[int, list[CallHeading]]:
    """Count the calls of turns that read their context from event ``first_seq`` on and before ``end_seq``.

    Return the number with the first and the last of these calls.
    """
    rows = _turn_calls(session_id).filter(context_seq__gte=first_seq)
    if end_seq is not None:
        rows = rows.filter(context_seq__lt=end_seq)
    lines = rows.only(*_HEADED)
    ends = [lines.order_by("created_at", "id").first(), lines.order_by("-created_at", "-id").first()]
    return rows.count(), [_heading(row) for row in ends if row is not None]


def turn_calls_from(session_id: str, first_seq: int) -> list[tuple[str, int, int]]:
    """Return (id, event of its context, branch) of the calls of turns from an event on, oldest first."""
    rows = _turn_calls(session_id).filter(context_seq__gte=first_seq).order_by("created_at", "id")
    return list(rows.annotate(branch=_BRANCH).values_list("id", "context_seq", "branch"))


def manifests_from(session_id: str, first_seq: int) -> Iterator[tuple[str, int, Any]]:
    """Yield (id, event of its context, manifest) of the calls of turns from an event on, oldest first, in one query."""
    rows = _turn_calls(session_id).filter(context_seq__gte=first_seq).order_by("created_at", "id")
    yield from rows.values_list("id", "context_seq", "manifest").iterator()


def newest_manifests(session_ids: Collection[str]) -> list[Any]:
    """Return the manifests of the newest calls of turns in some sessions, in one query."""
    newest = ModelCall.objects.filter(session_id=OuterRef("pk"), purpose="turn").order_by("-created_at", "-id")
    rows = ModelCall.objects.filter(
        id__in=Session.objects.filter(id__in=session_ids).values(newest=Subquery(newest.values("id")[:1]))
    )
    return list(rows.values_list("manifest", flat=True))


def answering_calls(turn_ids: Collection[str]) -> list[tuple[str, str, Any]]:
    """Return (turn, model, manifest) of the first completed call of each of these turns, in one query."""
    first = ModelCall.objects.filter(turn_id=OuterRef("pk"), purpose="turn", state="completed")
    first = first.order_by("created_at", "id")
    rows = ModelCall.objects.filter(
        id__in=Turn.objects.filter(id__in=turn_ids).values(first=Subquery(first.values("id")[:1]))
    )
    return [
        (str(turn_id), model, manifest) for turn_id, model, manifest in rows.values_list("turn_id", "model", "manifest")
    ]


def calls_after(message_ids: Collection[str]) -> list[tuple[str, str, Any]]:
    """Return (message, model, manifest) of the completed call that follows each of these answers in its turn.

    It is the first that was sent their results; two queries.
    """
    later = Message.objects.filter(turn_id=OuterRef("turn_id"), role="assistant", seq__gt=OuterRef("seq"))
    rows = Message.objects.filter(id__in=message_ids).annotate(after=Subquery(later.order_by("seq").values("id")[:1]))
    before = {after: id for id, after in rows.values_list("id", "after") if after}
    calls = ModelCall.objects.filter(message_id__in=before, purpose="turn", state="completed")
    return [
        (before[id], model, manifest) for id, model, manifest in calls.values_list("message_id", "model", "manifest")
    ]


def branches_of_calls(session_id: str, ids: Sequence[str]) -> dict[str, int]:
    """Return on which branch each of these calls of turns was made."""
    rows = _turn_calls(session_id).filter(id__in=list(ids)).annotate(branch=_BRANCH)
    return dict(rows.values_list("id", "branch"))


def calls_over_span(session_id: str, seq: int) -> list[tuple[str, Any]]:
    """Return (id, manifest) of calls for a summary of a span around a message, oldest first.

    A span may have gaps: the manifest says whether the message is in it.
    """
    first = Q(manifest__2__ranges__0__0__lte=seq, manifest__2__ranges__0__1__gte=seq)
    rows = _calls(session_id).filter(first | Q(manifest__2__ranges__1__0__lte=seq), turn=None, purpose="summary")
    return list(rows.order_by("created_at", "id").values_list("id", "manifest"))


# A call that has written no message yet is where its turn is.
_BRANCH = Coalesce(
    F("message__branch"),
    Subquery(Message.objects.filter(turn_id=OuterRef("turn_id")).order_by("-seq").values("branch")[:1]),
    0,
)


def _calls(session_id: str) -> QuerySet[Any]:
    return ModelCall.objects.filter(session_id=session_id)


def _turn_calls(session_id: str) -> QuerySet[Any]:
    return _calls(session_id).filter(purpose="turn")


def _heading(row: Any) -> CallHeading:
    return record_of(CallHeading, row, usage=usage_of(row))

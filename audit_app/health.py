"""The health of a session: what stands still, is behind or failed, and what to do about it."""

# ruff: noqa: S608 - the names in these statements are ours.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from agents_app.queries import count_waiting
from audit_app.store import find_verification
from compaction_app.context.fidelity import add_up, bound_of, load_measured
from compaction_app.context.state import Meter, load_meter
from compaction_app.queries import later_revisions
from mnesis_core.context.fitting import Pressure
from mnesis_core.text import excerpt
from sessions_app.database.tables import fetch, time_in_sql
from sessions_app.pages.markdown import format_duration
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import signed_in
from sessions_app.record.session_queries import load_session
from sessions_app.search import index

MOST_RUNS = 20
MOST_ALARMS = 3  # summaries that lost most, which are named
_TURN = "SELECT id, seq, state, {until}, error_code FROM turns WHERE session_id = %s ORDER BY seq DESC LIMIT 1"
_COMPACTION = (
    "SELECT id, state, attempts, {until}, {began}, error_code FROM compaction_runs"
    " WHERE session_id = %s ORDER BY created_at DESC LIMIT 1"
)
_SUMMARISED = (
    "SELECT MAX(last_seq) FROM summary_nodes WHERE session_id = %s AND kind = 'leaf' AND superseded_seq IS NULL"
)
_INDEXED = (
    "SELECT MAX(last_seq) FROM (SELECT last_seq FROM search_entries"
    " WHERE session_id = %s AND kind IN ('messages', 'tools') ORDER BY id DESC LIMIT 200) AS newest"
)
_FINDABLE = (
    "SELECT m.seq FROM messages m WHERE m.session_id = %s AND m.seq > %s AND EXISTS ("
    f"SELECT 1 FROM message_parts p WHERE p.message_id = m.id AND ((p.part_type IN {index.CALLS!r} AND p.tool_name <> '')"
    f" OR (p.part_type IN {index.TOLD!r} AND p.content <> '')))"
    " ORDER BY m.seq DESC LIMIT 1"
)
_LOOK_BACK = 100  # messages among which the newest is that can be found
_JOURNAL = "SELECT COUNT(*) FROM (SELECT 1 FROM stream_journal WHERE session_id = %s LIMIT 10000) AS pieces"
_RUNS = (
    "SELECT r.id, r.state, r.failed_count, EXISTS (SELECT 1 FROM operator_items i"
    " WHERE i.run_id = r.id AND i.state = 'running' AND i.lease_expires_at < %s)"
    " FROM operator_runs r WHERE r.session_id = %s AND r.state IN ('pending', 'running', 'paused')"
    " ORDER BY r.created_at DESC LIMIT %s"
)


class State(StrEnum):
    GOOD = "good"
    NOTE = "note"
    LOOK = "look"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: State
    words: str  # how it is, in a sentence
    to_do: str = ""
    address: str = ""  # where more is to be seen, and the text of the link to it
    label: str = ""


@dataclass(frozen=True, slots=True)
class SessionHealth:
    checks: list[Check]

    @property
    def is_well(self) -> bool:
        return not any(check.state in (State.LOOK, State.PROBLEM) for check in self.checks)


@signed_in
def health(request: HttpRequest, session_id: str) -> HttpResponse:
    about, now = inspected(request, session_id), timezone.now()
    context = {"about": about, "tab": "inspect-health", "health": look_at(about, now=now), "looked_at": now}
    return render(request, "audit_app/inspect_health.html", context)


def look_at(about: Inspected, *, now: datetime) -> SessionHealth:
    """Check a session, with as many queries whatever its length."""
    checks = [*_messages(about), *_fidelity(about), _search(about), _turn(about, now), _compaction(about, now)]
    checks += [_context(load_meter(about.id)), _streamed_text(about), _host(about)]
    return SessionHealth([*checks, *_operators(about, now), _proof(about)])


def _messages(about: Inspected) -> Iterator[Check]:
    words = f"{about.message_seq:,} in {about.turn_seq:,} turns." if about.message_seq else "No messages yet."
    yield Check("Messages", State.NOTE, words)
    last = _one(_SUMMARISED, about.id)
    if not last:
        yield Check("Summaries", State.NOTE, "No summaries yet. The context has every message word for word.")
        return
    words = f"Messages up to #{last:,} are summarised. {about.message_seq - last:,} newer ones are not."
    yield Check("Summaries", State.NOTE, words, address=address_of("inspect-summaries", about.id), label="Summaries")


def _fidelity(about: Inspected) -> Iterator[Check]:
    """Yield what summaries kept of names, numbers, dates, decisions and the like, and after that the worst of them."""
    bound, measured = bound_of(about.id), load_measured(about.id)
    revised = later_revisions(list(measured))  # The revision counts in its place.
    rows = [row for id, row in measured.items() if id not in revised]
    found = add_up(rows, bound=bound)
    if found is None:
        words = "No summary has been measured yet. A worker measures each new one."
        yield Check("Fidelity", State.NOTE, words)
        return
    kept = f"{found.kept:,} of {found.counted:,} names, numbers, dates, identifiers, decisions and instructions"
    alarms = [row for row in rows if row.is_alarm(bound=bound)]
    words = f"Kept in {len(rows):,} summar{'y' if len(rows) == 1 else 'ies'}: {kept}."
    if not alarms:
        yield Check("Fidelity", State.GOOD, words)
        return
    to_do = "Nothing is lost in the record. Read what is missing, add it as facts under Memory, or revise the summary."
    yield Check("Fidelity", State.LOOK, f"{words} {len(alarms):,} of them keep too little.", to_do)
    for row in sorted(alarms, key=lambda row: -row.missing / row.counted)[:MOST_ALARMS]:
        words = f"One kept {row.kept:,} of {row.counted:,}."
        address = f"{address_of('inspect-summary', about.id, row.summary_id)}#missing"
        yield Check("Fidelity", State.LOOK, words, address=address, label="See what is missing")


def _search(about: Inspected) -> Check:
    findable = _one(_FINDABLE, about.id, about.message_seq - _LOOK_BACK) or 0
    indexed = _one(_INDEXED, about.id) or 0
    if indexed < findable:
        words = f"It ends at message #{indexed:,}; the newest one with words is #{findable:,}."
        to_do = "Run 'manage.py rebuild_search'. Nothing is lost: the index is made from the record."
        return Check("Search index", State.PROBLEM, words, to_do)
    words = f"Up to the newest message with words, #{findable:,}." if findable else "No messages yet."
    return Check("Search index", State.GOOD, words)


def _turn(about: Inspected, now: datetime) -> Check:
    rows = fetch(_TURN.format(until=_as_text("lease_expires_at")), [about.id])
    if not rows:
        return Check("Turns", State.GOOD, "No turns yet.")
    [(id, seq, state, until, error)] = rows
    late = _seconds_since(until, now)
    check = partial(Check, "Turns", address=address_of("inspect-turn", about.id, id), label=f"Turn {seq:,}")
    if state == "running" and late is not None:
        words = f"The process of turn {seq:,} has been silent for {format_duration(late)}."
        to_do = (
            "It will be closed as interrupted within seconds, with everything that was streamed. "
            "If it stays, no process is running."
        )
        return check(State.PROBLEM, words, to_do)
    if state == "running":
        return check(State.GOOD, f"Turn {seq:,} is running.")
    if state == "suspended":
        to_do = "Approve or deny its tool calls, or send the results of the tools that its caller runs."
        return check(State.LOOK, f"Turn {seq:,} is waiting.", to_do)
    if state in ("failed", "interrupted", "incomplete"):
        why = f" ({excerpt(error, 60)})" if error else ""
        to_do = "Check the reason, then send a message to continue."
        return check(State.LOOK, f"The last turn, {seq:,}, ended as {state}{why}.", to_do)
    return check(State.GOOD, f"No turn is running. The last one, {seq:,}, ended as {state}.")


def _compaction(about: Inspected, now: datetime) -> Check:
    sql = _COMPACTION.format(until=_as_text("lease_expires_at"), began=_as_text("created_at"))
    rows = fetch(sql, [about.id])
    if not rows:
        return Check("Compaction", State.GOOD, "No compactions yet.")
    [(id, state, attempts, until, began, error)] = rows
    late, waited = _seconds_since(until, now), _seconds_since(began, now)
    check = partial(
        Check, "Compaction", address=address_of("inspect-compaction", about.id, id), label="Last compaction"
    )
    again = "A worker takes it up again. If none does, check that a worker is running."
    if state == "running" and late is not None:
        words = f"Its worker has been silent for {format_duration(late)} (attempt {attempts})."
        return check(State.PROBLEM, words, again)
    if state == "running":
        return check(State.GOOD, f"A compaction is running (attempt {attempts}).")
    if state == "queued":
        words = f"A compaction has been waiting for a worker for {format_duration(waited)}."
        is_late = waited is not None and waited > 60
        return check(State.LOOK, words, again) if is_late else check(State.NOTE, words)
    if state == "failed":
        why = f" ({excerpt(error, 60)})" if error else ""
        return check(
            State.LOOK, f"The last compaction failed{why}.", "Check the reason. The next turn starts another one."
        )
    return check(State.GOOD, f"No compaction is running. The last one ended as {state}.")


def _context(meter: Meter) -> Check:
    of = f"{meter.used_tokens:,} of {meter.usable_tokens:,} usable tokens (window {meter.window:,})."
    if meter.used_tokens > meter.usable_tokens:
        to_do = "It is compacted before the next call. What may not be summarised is shortened for the model."
        return Check("Context", State.PROBLEM, f"Over its window: {of}", to_do)
    if meter.pressure is Pressure.HARD:
        return Check("Context", State.LOOK, f"Above the hard threshold: {of}", "It is compacted before the next call.")
    if meter.pressure is Pressure.SOFT:
        return Check("Context", State.NOTE, f"Above the soft threshold: {of}")
    return Check("Context", State.GOOD, of)


def _streamed_text(about: Inspected) -> Check:
    pieces = _one(_JOURNAL, about.id) or 0
    if not pieces:
        return Check("Streamed text", State.GOOD, "All streamed text is stored in messages.")
    if about.state == "running":
        return Check("Streamed text", State.NOTE, f"{pieces:,} pieces of the answer in progress.")
    to_do = "They become a message when a web or worker process closes their turn."
    return Check("Streamed text", State.PROBLEM, f"{pieces:,} pieces are left over, and no turn is running.", to_do)


def _host(about: Inspected) -> Check:
    session, waiting = load_session(about.id), count_waiting(about.id)
    name = f" as “{excerpt(session.peer_name, 64)}”" if session.peer_name else ""
    words = f"On{name}." if session.host_mode else "Off."
    if not waiting:
        return Check("Host mode", State.NOTE, f"{words} No messages are waiting.")
    words += f" {'One message is' if waiting == 1 else f'{waiting:,} messages are'} waiting in its inbox."
    if session.host_mode and about.state == "running":
        return Check("Host mode", State.NOTE, words)
    to_do = "Turn on host mode to have them read."
    if about.archived_at:
        to_do = "An archived session does not read messages. Unarchive it to have them read."
    elif session.host_mode:
        to_do = "They are read when the session is idle. If they stay, no process is running."
    return Check("Host mode", State.LOOK, words, to_do)


def _operators(about: Inspected, now: datetime) -> Iterator[Check]:
    rows = fetch(_RUNS, [connection.ops.adapt_datetimefield_value(now), about.id, MOST_RUNS])
    if not rows:
        yield Check("Runs", State.GOOD, "No runs are active or paused.")
    for id, state, failed, is_forsaken in rows:
        items = f" {failed:,} items failed." if failed else ""
        check = partial(Check, "Runs", address=address_of("run", id) if about.is_own else "", label=id)
        if is_forsaken and state == "paused":
            words = f"A run is paused, and items of it were left by their worker.{items}"
            yield check(State.LOOK, words, "They are tried again when it is resumed. Resume or cancel it.")
        elif is_forsaken:
            words = f"A run is {state}, and a worker that held items of it is silent.{items}"
            to_do = "Another worker takes them up within seconds. If none does, check that a worker is running."
            yield check(State.PROBLEM, words, to_do)
        elif state == "paused":
            yield check(State.LOOK, f"A run is paused.{items}", "Resume or cancel it.")
        elif failed:
            yield check(State.LOOK, f"A run is {state}.{items}", "Read the first failures.")
        else:
            yield check(State.NOTE, f"A run is {state}.")


def _proof(about: Inspected) -> Check:
    record = find_verification(about.id)
    found = record.found if record else None
    check = partial(Check, "Proof", address=address_of("inspect-ledger", about.id))
    if found is None:
        return check(State.NOTE, "This session has not been verified here.", label="Verify this session")
    if found.problem_count:
        words = f"Problems found by the last verification: {found.problem_count:,}. Its record was changed."
        to_do = "Find out what was changed before you continue this session."
        return check(State.PROBLEM, words, to_do, label="See the problems")
    words = (
        f"Verified to #{found.seq:,} of #{about.event_seq:,}, {found.at:%-d %b %Y, %H:%M} UTC. No differences found."
    )
    return check(State.GOOD, words, label="Ledger")


def _one(sql: str, *values: Any) -> int | None:
    rows = fetch(sql, values)
    return int(rows[0][0]) if rows and rows[0][0] is not None else None


def _as_text(column: str) -> str:
    return time_in_sql(column, connection.vendor)


def _seconds_since(text: str | None, now: datetime) -> float | None:
    """Return the seconds since a time, or ``None`` if it is still to come or there is none."""
    seconds = (now - datetime.fromisoformat(text).replace(tzinfo=UTC)).total_seconds() if text else -1.0
    return seconds if seconds > 0 else None

"""One line of a page about health: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from agents_app.queries import count_waiting
from audit_app.queries import find_verification
from compaction_app.context import Meter, load_meter
from mnesis_core.context.fitting import Pressure
from mnesis_core.text import excerpt
from sessions_app.database.commitments import time_in_sql
from sessions_app.database.fast_sql import fetch
from sessions_app.pages.markdown import format_duration
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import signed_in
from sessions_app.record.session_queries import load_session


class State(StrEnum):
    """How something is; the word that the page shows."""

    GOOD = "good"
    NOTE = "note"
    LOOK = "look"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    words: str
    """How it is, in a sentence."""
    to_do: str = ""
    """What to do about it; empty: nothing."""
    address: str = ""
    """Where more is to be seen."""
    label: str = ""
    """What the link to there says."""


# The health of one session: what stands still, what is behind, what failed, and what to do about it.

MOST_RUNS = 20
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
    "SELECT 1 FROM message_parts p WHERE p.message_id = m.id AND ((p.part_type = 'tool' AND p.tool_name <> '')"
    " OR (p.part_type IN ('text', 'reasoning', 'patch', 'file_ref') AND p.content <> '')))"
    " ORDER BY m.seq DESC LIMIT 1"
)
_LOOK_BACK = 100
"""Messages among which the newest is that can be found."""
_JOURNAL = "SELECT COUNT(*) FROM (SELECT 1 FROM stream_journal WHERE session_id = %s LIMIT 10000) AS pieces"
_RUNS = (
    "SELECT r.id, r.state, r.failed_count, EXISTS (SELECT 1 FROM operator_items i"
    " WHERE i.run_id = r.id AND i.state = 'running' AND i.lease_expires_at < %s)"
    " FROM operator_runs r WHERE r.session_id = %s AND r.state IN ('pending', 'running', 'paused')"
    " ORDER BY r.created_at DESC LIMIT %s"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHealth:
    """What was found in one session."""

    checks: list[Check]
    is_well: bool
    """Whether nothing of it needs anybody."""


def look_at(about: Inspected, *, now: datetime) -> SessionHealth:
    """Look at a session: as many queries whatever its length."""
    checks = [
        *_messages(about),
        _search(about),
        _turn(about, now),
        _compaction(about, now),
        _context(about, load_meter(about.id)),
        _journal(about),
        _host(about),
        *_operators(about, now),
        _proof(about),
    ]
    needs = (State.LOOK, State.PROBLEM)
    return SessionHealth(checks=checks, is_well=not any(check.state in needs for check in checks))


def _messages(about: Inspected) -> Iterator[Check]:
    words = f"{about.message_seq:,} in {about.turn_seq:,} turns." if about.message_seq else "Nothing was said yet."
    yield Check(name="Messages", state=State.NOTE, words=words)
    last = _one(_SUMMARISED, about.id)
    told = "Nothing is summarised: the context has every message as it is."
    if last:
        left = about.message_seq - last
        told = f"Messages up to #{last:,} are summarised, {left:,} newer ones are not."
    address = address_of("inspect-summaries", about.id) if last else ""
    yield Check(name="Summaries", state=State.NOTE, words=told, address=address, label="Summaries")


def _search(about: Inspected) -> Check:
    findable = _one(_FINDABLE, about.id, about.message_seq - _LOOK_BACK) or 0
    indexed = _one(_INDEXED, about.id) or 0
    if indexed >= findable:
        return Check(
            name="Search index",
            state=State.GOOD,
            words=f"Up to the newest message with words, #{findable:,}." if findable else "Nothing was said so far.",
        )
    return Check(
        name="Search index",
        state=State.PROBLEM,
        words=f"It ends at message #{indexed:,}; the newest one with words is #{findable:,}.",
        to_do="Run 'manage.py rebuild_search'. Nothing is lost: the index is made from the record.",
    )


def _turn(about: Inspected, now: datetime) -> Check:
    rows = fetch(_TURN.format(until=_as_text("lease_expires_at")), [about.id])
    if not rows:
        return Check(name="Turns", state=State.GOOD, words="There was none so far.")
    [(id, seq, state, until, error)] = rows
    address, label = address_of("inspect-turn", about.id, id), f"Turn {seq:,}"
    state_now, words, to_do = _of_turn(seq, state, _past(until, now), error)
    return Check(name="Turns", state=state_now, words=words, to_do=to_do, address=address, label=label)


def _of_turn(seq: int, state: str, late: float | None, error: str | None) -> tuple[State, str, str]:
    if state == "running" and late is not None:
        wait = "It is closed as interrupted within seconds, with all that was streamed. If it stays, no process runs."
        return State.PROBLEM, f"The process of turn {seq:,} has been silent for {format_duration(late)}.", wait
    if state == "running":
        return State.GOOD, f"Turn {seq:,} runs.", ""
    if state == "suspended":
        return State.LOOK, f"Turn {seq:,} waits.", "Decide its approvals, or answer the calls that its caller runs."
    if state in ("failed", "interrupted", "incomplete"):
        why = f" ({excerpt(error, 60)})" if error else ""
        return State.LOOK, f"The last turn, {seq:,}, ended {state}{why}.", "Read why, then send a message to go on."
    return State.GOOD, f"None runs. The last one, {seq:,}, ended {state}.", ""


def _compaction(about: Inspected, now: datetime) -> Check:
    sql = _COMPACTION.format(until=_as_text("lease_expires_at"), began=_as_text("created_at"))
    rows = fetch(sql, [about.id])
    if not rows:
        return Check(name="Compaction", state=State.GOOD, words="None was needed so far.")
    [(id, state, attempts, until, began, error)] = rows
    address = address_of("inspect-compaction", about.id, id)
    found, words, to_do = _of_compaction(state, attempts, _past(until, now), _past(began, now), error)
    return Check(name="Compaction", state=found, words=words, to_do=to_do, address=address, label="The last one")


def _of_compaction(
    state: str, attempts: int, late: float | None, waited: float | None, error: str | None
) -> tuple[State, str, str]:
    again = "A worker takes it up again. If none does, look whether a worker runs."
    if state == "running" and late is not None:
        return State.PROBLEM, f"Its worker has been silent for {format_duration(late)} (attempt {attempts}).", again
    if state == "running":
        return State.GOOD, f"One runs (attempt {attempts}).", ""
    if state == "queued":
        is_late = waited is not None and waited > 60
        return (
            State.LOOK if is_late else State.NOTE,
            f"One has waited for a worker for {format_duration(waited)}.",
            again if is_late else "",
        )
    if state == "failed":
        why = f" ({excerpt(error, 60)})" if error else ""
        return State.LOOK, f"The last one failed{why}.", "The next turn asks for another one; read what it met."
    return State.GOOD, f"None runs. The last one ended {state}.", ""


def _context(about: Inspected, meter: Meter) -> Check:
    of = f"{meter.used_tokens:,} of {meter.usable_tokens:,} tokens that may be used (window {meter.window:,})."
    if meter.used_tokens > meter.usable_tokens:
        to_do = "It is compacted before the next call. What may not be summarised is shown to the model shortened."
        return Check(name="Context", state=State.PROBLEM, words=f"Over its window: {of}", to_do=to_do)
    if meter.pressure is Pressure.HARD:
        to_do = "It is compacted before the next call."
        return Check(name="Context", state=State.LOOK, words=f"Above the hard mark: {of}", to_do=to_do)
    if meter.pressure is Pressure.SOFT:
        return Check(name="Context", state=State.NOTE, words=f"Above the soft threshold: {of}")
    return Check(name="Context", state=State.GOOD, words=of)


def _journal(about: Inspected) -> Check:
    pieces = _one(_JOURNAL, about.id) or 0
    if not pieces:
        return Check(name="Streamed text", state=State.GOOD, words="All of it is in messages.")
    if about.state == "running":
        return Check(name="Streamed text", state=State.NOTE, words=f"{pieces:,} pieces of the answer that runs.")
    return Check(
        name="Streamed text",
        state=State.PROBLEM,
        words=f"{pieces:,} pieces are left, and no turn runs.",
        to_do="They become a message when their turn is closed, which any web or worker process does.",
    )


def _host(about: Inspected) -> Check:
    session, waiting = load_session(about.id), count_waiting(about.id)
    name = f" as “{excerpt(session.peer_name, 64)}”" if session.peer_name else ""
    words = f"On{name}." if session.host_mode else "Off."
    if not waiting:
        return Check(name="Host mode", state=State.NOTE, words=f"{words} No message waits.")
    told = f"{words} {'One message waits' if waiting == 1 else f'{waiting:,} messages wait'} in its inbox."
    if session.host_mode and about.state == "running":
        return Check(name="Host mode", state=State.NOTE, words=told)
    to_do = "Turn host mode on, and they are read."
    if about.archived_at:
        to_do = "An archived session reads nothing. Bring it back, or leave them."
    elif session.host_mode:
        to_do = "They are read when the session is idle; if they stay, no process runs."
    return Check(name="Host mode", state=State.LOOK, words=told, to_do=to_do)


def _operators(about: Inspected, now: datetime) -> Iterator[Check]:
    rows = fetch(_RUNS, [connection.ops.adapt_datetimefield_value(now), about.id, MOST_RUNS])
    if not rows:
        yield Check(name="Runs", state=State.GOOD, words="No run goes on or is paused.")
    for id, state, failed, is_forsaken in rows:
        found, words, to_do = _of_run(state, failed, bool(is_forsaken))
        address = address_of("run", id) if about.is_own else ""
        yield Check(name="Runs", state=found, words=words, to_do=to_do, address=address, label=id)


def _of_run(state: str, failed: int, is_forsaken: bool) -> tuple[State, str, str]:
    items = f" {failed:,} items failed." if failed else ""
    if is_forsaken and state == "paused":
        words = f"A run is paused, and items of it were left by their worker.{items}"
        return State.LOOK, words, "They are tried again when it is resumed. Resume or cancel it."
    if is_forsaken:
        again = "Another worker takes them up within seconds. If none does, look whether a worker runs."
        return State.PROBLEM, f"A run is {state}, and a worker that held items of it is silent.{items}", again
    if state == "paused":
        return State.LOOK, f"A run is paused.{items}", "Resume or cancel it."
    return (
        State.LOOK if failed else State.NOTE,
        f"A run is {state}.{items}",
        "Read the first failures." if failed else "",
    )


def _proof(about: Inspected) -> Check:
    record, address = find_verification(about.id), address_of("inspect-ledger", about.id)
    found = record.found if record else None
    if found is None:
        return Check(
            name="Proof",
            state=State.NOTE,
            words="Nobody has verified this session here.",
            address=address,
            label="Verify it",
        )
    if found.problem_count:
        return Check(
            name="Proof",
            state=State.PROBLEM,
            words=f"Problems that the last verification found: {found.problem_count:,}. Its record was changed.",
            to_do="Do not go on with it before somebody has looked.",
            address=address,
            label="What was found",
        )
    words = f"Verified to #{found.seq:,} of #{about.event_seq:,}, {found.at:%-d %b %Y, %H:%M} UTC; nothing differed."
    return Check(name="Proof", state=State.GOOD, words=words, address=address, label="Ledger")


def _one(sql: str, *values: Any) -> int | None:
    rows = fetch(sql, values)
    return int(rows[0][0]) if rows and rows[0][0] is not None else None


def _as_text(column: str) -> str:
    return time_in_sql(column, connection.vendor)


def _past(text: str | None, now: datetime) -> float | None:
    """Seconds since then; ``None`` where it is still to come, or there is none."""
    seconds = (now - datetime.fromisoformat(text).replace(tzinfo=UTC)).total_seconds() if text else -1.0
    return seconds if seconds > 0 else None


# The health of one session.


@signed_in
def health(request: HttpRequest, session_id: str) -> HttpResponse:
    about, now = inspected(request, session_id), timezone.now()
    context = {"about": about, "tab": "inspect-health", "health": look_at(about, now=now), "looked_at": now}
    return render(request, "audit_app/inspect_health.html", context)

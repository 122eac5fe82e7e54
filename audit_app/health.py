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
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext, pgettext_lazy

from agents_app.queries import count_waiting
from audit_app.store import find_verification
from compaction_app.context.fidelity import add_up, bound_of, load_measured
from compaction_app.context.state import Meter, load_meter
from compaction_app.queries import later_revisions
from mnesis_core.context.fitting import Pressure
from mnesis_core.text import excerpt
from sessions_app.database.tables import fetch, time_in_sql
from sessions_app.pages.formats import format_duration, format_moment, format_number
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import signed_in
from sessions_app.record.session_queries import load_session
from sessions_app.search import index

STATES = {
    "pending": pgettext_lazy("how something ended or stands", "pending"),
    "running": pgettext_lazy("how something ended or stands", "running"),
    "paused": pgettext_lazy("how something ended or stands", "paused"),
    "completed": pgettext_lazy("how something ended or stands", "completed"),
    "cancelled": pgettext_lazy("how something ended or stands", "cancelled"),
    "interrupted": pgettext_lazy("how something ended or stands", "interrupted"),
    "incomplete": pgettext_lazy("how something ended or stands", "incomplete"),
    "failed": pgettext_lazy("how something ended or stands", "failed"),
}
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
    return render(request, "audit_app/health/health.html", context)


def look_at(about: Inspected, *, now: datetime) -> SessionHealth:
    """Check a session, with as many queries whatever its length."""
    checks = [*_messages(about), *_fidelity(about), _search(about), _turn(about, now), _compaction(about, now)]
    checks += [_context(load_meter(about.id)), _streamed_text(about), _host(about)]
    return SessionHealth([*checks, *_operators(about, now), _proof(about)])


def _messages(about: Inspected) -> Iterator[Check]:
    words = _("No messages yet.")
    if about.message_seq:
        shown = {"messages": format_number(about.message_seq), "turns": format_number(about.turn_seq)}
        words = _("%(messages)s in %(turns)s turns.") % shown
    yield Check(_("Messages"), State.NOTE, words)
    last = _one(_SUMMARISED, about.id)
    if not last:
        words = _("No summaries yet. The context has every message word for word.")
        yield Check(_("Summaries"), State.NOTE, words)
        return
    shown = {"last": format_number(last), "newer": format_number(about.message_seq - last)}
    words = _("Messages up to #%(last)s are summarised. %(newer)s newer ones are not.") % shown
    address = address_of("inspect-summaries", about.id)
    yield Check(_("Summaries"), State.NOTE, words, address=address, label=_("Summaries"))


def _fidelity(about: Inspected) -> Iterator[Check]:
    """Yield what summaries kept of names, numbers, dates, decisions and the like, and after that the worst of them."""
    bound, measured = bound_of(about.id), load_measured(about.id)
    revised = later_revisions(list(measured))  # The revision counts in its place.
    rows = [row for id, row in measured.items() if id not in revised]
    found = add_up(rows, bound=bound)
    if found is None:
        words = _("No summary has been measured yet. A worker measures each new one.")
        yield Check(_("Fidelity"), State.NOTE, words)
        return
    alarms = [row for row in rows if row.is_alarm(bound=bound)]
    numbers = {"summaries": len(rows), "kept": found.kept, "counted": found.counted}
    words = ngettext(
        "Kept in %(summaries)s summary: %(kept)s of %(counted)s names, numbers, dates, identifiers, decisions and "
        "instructions.",
        "Kept in %(summaries)s summaries: %(kept)s of %(counted)s names, numbers, dates, identifiers, decisions and "
        "instructions.",
        len(rows),
    ) % {name: format_number(number) for name, number in numbers.items()}
    if not alarms:
        yield Check(_("Fidelity"), State.GOOD, words)
        return
    to_do = _(
        "Nothing is lost in the record. Read what is missing, add it as facts under Memory, or revise the summary."
    )
    few = _("%(count)s of them keep too little.") % {"count": format_number(len(alarms))}
    yield Check(_("Fidelity"), State.LOOK, f"{words} {few}", to_do)
    for row in sorted(alarms, key=lambda row: -row.missing / row.counted)[:MOST_ALARMS]:
        shown = {"kept": format_number(row.kept), "counted": format_number(row.counted)}
        words = _("One kept %(kept)s of %(counted)s.") % shown
        address = f"{address_of('inspect-summary', about.id, row.summary_id)}#missing"
        yield Check(_("Fidelity"), State.LOOK, words, address=address, label=_("See what is missing"))


def _search(about: Inspected) -> Check:
    findable = _one(_FINDABLE, about.id, about.message_seq - _LOOK_BACK) or 0
    indexed = _one(_INDEXED, about.id) or 0
    if indexed < findable:
        shown = {"last": format_number(indexed), "newest": format_number(findable)}
        words = _("It ends at message #%(last)s; the newest one with words is #%(newest)s.") % shown
        to_do = _("Run 'manage.py rebuild_search'. Nothing is lost: the index is made from the record.")
        return Check(_("Search index"), State.PROBLEM, words, to_do)
    words = _("No messages yet.")
    if findable:
        words = _("Up to the newest message with words, #%(newest)s.") % {"newest": format_number(findable)}
    return Check(_("Search index"), State.GOOD, words)


def _turn(about: Inspected, now: datetime) -> Check:
    rows = fetch(_TURN.format(until=_as_text("lease_expires_at")), [about.id])
    if not rows:
        return Check(_("Turns"), State.GOOD, _("No turns yet."))
    [(id, seq, state, until, error)] = rows
    late = _seconds_since(until, now)
    shown = {"number": format_number(seq), "state": STATES.get(state, state)}
    label = _("Turn %(number)s") % shown
    check = partial(Check, _("Turns"), address=address_of("inspect-turn", about.id, id), label=label)
    if state == "running" and late is not None:
        shown |= {"duration": format_duration(late)}
        words = _("The process of turn %(number)s has been silent for %(duration)s.") % shown
        to_do = _(
            "It will be closed as interrupted within seconds, with everything that was streamed. "
            "If it stays, no process is running."
        )
        return check(State.PROBLEM, words, to_do)
    if state == "running":
        return check(State.GOOD, _("Turn %(number)s is running.") % shown)
    if state == "suspended":
        to_do = _("Approve or deny its tool calls, or send the results of the tools that its caller runs.")
        return check(State.LOOK, _("Turn %(number)s is waiting.") % shown, to_do)
    if state in ("failed", "interrupted", "incomplete"):
        to_do = _("Check the reason, then send a message to continue.")
        words = _("The last turn, %(number)s, ended as %(state)s.")
        if error:
            words = _("The last turn, %(number)s, ended as %(state)s (%(reason)s).")
        return check(State.LOOK, words % (shown | {"reason": excerpt(error or "", 60)}), to_do)
    return check(State.GOOD, _("No turn is running. The last one, %(number)s, ended as %(state)s.") % shown)


def _compaction(about: Inspected, now: datetime) -> Check:
    sql = _COMPACTION.format(until=_as_text("lease_expires_at"), began=_as_text("created_at"))
    rows = fetch(sql, [about.id])
    if not rows:
        return Check(_("Compaction"), State.GOOD, _("No compactions yet."))
    [(id, state, attempts, until, began, error)] = rows
    late, waited = _seconds_since(until, now), _seconds_since(began, now)
    address = address_of("inspect-compaction", about.id, id)
    check = partial(Check, _("Compaction"), address=address, label=_("Last compaction"))
    again = _("A worker takes it up again. If none does, check that a worker is running.")
    if state == "running" and late is not None:
        shown = {"duration": format_duration(late), "number": attempts}
        words = _("Its worker has been silent for %(duration)s (attempt %(number)s).") % shown
        return check(State.PROBLEM, words, again)
    if state == "running":
        return check(State.GOOD, _("A compaction is running (attempt %(number)s).") % {"number": attempts})
    if state == "queued":
        text = _("A compaction has been waiting for a worker for %(duration)s.")
        words = text % {"duration": format_duration(waited)}
        is_late = waited is not None and waited > 60
        return check(State.LOOK, words, again) if is_late else check(State.NOTE, words)
    if state == "failed":
        words = _("The last compaction failed (%(reason)s).") if error else _("The last compaction failed.")
        to_do = _("Check the reason. The next turn starts another one.")
        return check(State.LOOK, words % {"reason": excerpt(error or "", 60)}, to_do)
    words = _("No compaction is running. The last one ended as %(state)s.")
    return check(State.GOOD, words % {"state": STATES.get(state, state)})


def _context(meter: Meter) -> Check:
    sizes = {"used": meter.used_tokens, "usable": meter.usable_tokens, "window": meter.window}
    of = _("%(used)s of %(usable)s usable tokens (window %(window)s).") % {
        name: format_number(size) for name, size in sizes.items()
    }
    if meter.used_tokens > meter.usable_tokens:
        to_do = _("It is compacted before the next call. What may not be summarised is shortened for the model.")
        return Check(_("Context"), State.PROBLEM, _("Over its window: %(tokens)s") % {"tokens": of}, to_do)
    if meter.pressure is Pressure.HARD:
        words = _("Above the hard threshold: %(tokens)s") % {"tokens": of}
        return Check(_("Context"), State.LOOK, words, _("It is compacted before the next call."))
    if meter.pressure is Pressure.SOFT:
        return Check(_("Context"), State.NOTE, _("Above the soft threshold: %(tokens)s") % {"tokens": of})
    return Check(_("Context"), State.GOOD, of)


def _streamed_text(about: Inspected) -> Check:
    pieces = _one(_JOURNAL, about.id) or 0
    if not pieces:
        return Check(_("Streamed text"), State.GOOD, _("All streamed text is stored in messages."))
    shown = {"count": format_number(pieces)}
    if about.state == "running":
        return Check(_("Streamed text"), State.NOTE, _("%(count)s pieces of the answer in progress.") % shown)
    to_do = _("They become a message when a web or worker process closes their turn.")
    words = _("%(count)s pieces are left over, and no turn is running.") % shown
    return Check(_("Streamed text"), State.PROBLEM, words, to_do)


def _host(about: Inspected) -> Check:
    session, waiting = load_session(about.id), count_waiting(about.id)
    words = pgettext("host mode", "Off.")
    if session.host_mode:
        words = pgettext("host mode", "On as “%(name)s”.") if session.peer_name else pgettext("host mode", "On.")
        words %= {"name": excerpt(session.peer_name or "", 64)}
    if not waiting:
        return Check(_("Host mode"), State.NOTE, f"{words} {_('No messages are waiting.')}")
    more = _("One message is waiting in its inbox.")
    if waiting > 1:
        more = _("%(count)s messages are waiting in its inbox.") % {"count": format_number(waiting)}
    words = f"{words} {more}"
    if session.host_mode and about.state == "running":
        return Check(_("Host mode"), State.NOTE, words)
    to_do = _("Turn on host mode to have them read.")
    if about.archived_at:
        to_do = _("An archived session does not read messages. Unarchive it to have them read.")
    elif session.host_mode:
        to_do = _("They are read when the session is idle. If they stay, no process is running.")
    return Check(_("Host mode"), State.LOOK, words, to_do)


def _operators(about: Inspected, now: datetime) -> Iterator[Check]:
    rows = fetch(_RUNS, [connection.ops.adapt_datetimefield_value(now), about.id, MOST_RUNS])
    if not rows:
        yield Check(_("Runs"), State.GOOD, _("No runs are active or paused."))
    for id, state, failed, is_forsaken in rows:
        items = " " + _("%(count)s items failed.") % {"count": format_number(failed)} if failed else ""
        a_run = _("A run is %(state)s.") % {"state": STATES.get(state, state)} + items
        check = partial(Check, _("Runs"), address=address_of("run", id) if about.is_own else "", label=id)
        if is_forsaken and state == "paused":
            words = _("A run is paused, and items of it were left by their worker.") + items
            yield check(State.LOOK, words, _("They are tried again when it is resumed. Resume or cancel it."))
        elif is_forsaken:
            words = _("A run is %(state)s, and a worker that held items of it is silent.")
            to_do = _("Another worker takes them up within seconds. If none does, check that a worker is running.")
            yield check(State.PROBLEM, words % {"state": STATES.get(state, state)} + items, to_do)
        elif state == "paused":
            yield check(State.LOOK, a_run, _("Resume or cancel it."))
        elif failed:
            yield check(State.LOOK, a_run, _("Read the first failures."))
        else:
            yield check(State.NOTE, a_run)


def _proof(about: Inspected) -> Check:
    record = find_verification(about.id)
    found = record.found if record else None
    check = partial(Check, _("Proof"), address=address_of("inspect-ledger", about.id))
    if found is None:
        return check(State.NOTE, _("This session has not been verified here."), label=_("Verify this session"))
    if found.problem_count:
        words = _("Problems found by the last verification: %(count)s. Its record was changed.")
        to_do = _("Find out what was changed before you continue this session.")
        count = {"count": format_number(found.problem_count)}
        return check(State.PROBLEM, words % count, to_do, label=_("See the problems"))
    words = _("Verified to #%(seq)s of #%(last)s, %(time)s UTC. No differences found.") % {
        "seq": format_number(found.seq),
        "last": format_number(about.event_seq),
        "time": format_moment(found.at),
    }
    return check(State.GOOD, words, label=_("Ledger"))


def _one(sql: str, *values: Any) -> int | None:
    rows = fetch(sql, values)
    return int(rows[0][0]) if rows and rows[0][0] is not None else None


def _as_text(column: str) -> str:
    return time_in_sql(column, connection.vendor)


def _seconds_since(text: str | None, now: datetime) -> float | None:
    """Return the seconds since a time, or ``None`` if it is still to come or there is none."""
    seconds = (now - datetime.fromisoformat(text).replace(tzinfo=UTC)).total_seconds() if text else -1.0
    return seconds if seconds > 0 else None

"""The timeline of a session: its turns, its totals, and what one turn did, step by step on the turn's own time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext, pgettext_lazy

from compaction_app import queries
from mnesis_core.errors import CompactionNotFoundError, InvalidRequest, TurnNotFoundError
from mnesis_core.records import RunRecord, TurnState, UsageRecord, total_usage
from mnesis_core.text import excerpt, printable
from sessions_app.pages.formats import format_counted, format_duration, format_money, format_number
from sessions_app.pages.kept_texts import kept_error_text
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, inspected
from sessions_app.pages.transcript import LARGEST, LAUNCHING_TOOLS, Relative, first_words, list_launched
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record import timeline_queries
from sessions_app.record.timeline_queries import MessageStep, ToolStep, load_steps
from sessions_app.record.turn_queries import CallHeading

PAGE = 50
STATES = [state.value for state in TurnState]
MESSAGES = 100
TEXT = 140
AXIS = 1_000  # length of the time axis, in its own units
NARROWEST = 4  # the shortest bar that can still be seen, on the axis
MAP_TOOLS = {"llm_map", "agentic_map"}
SHOWN_SUMMARIES = 10
DAY_SECONDS = 86_400
ROLES = {
    "user": pgettext_lazy("who says a message", "user"),
    "system": pgettext_lazy("who says a message", "system"),
    "tool": pgettext_lazy("who says a message", "tool"),
    "assistant": pgettext_lazy("who says a message", "assistant"),
}
TITLES = {
    "soft": gettext_lazy("soft compaction"),
    "hard": gettext_lazy("hard compaction"),
    "manual": gettext_lazy("manual compaction"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    state: str = ""
    errors: bool = False
    compactions: bool = False
    tool: str = ""
    q: str = ""
    turn: int | None = None

    @property
    def query(self) -> str:
        return urlencode({name: "1" if value is True else value for name, value in asdict(self).items() if value})


def load_timeline(about: Inspected, wanted: Wanted, *, before: int | None, start: int | None) -> dict[str, Any]:
    """Return a page of a session's turns, the newest first: those before one, or with ``start`` those from one on."""
    if before is None and wanted.turn is not None:
        before = wanted.turn + 1
    chosen = timeline_queries.TurnFilter(
        state=wanted.state,
        has_errors=wanted.errors,
        tool=wanted.tool,
        text=wanted.q,
        message_seqs=queries.compacted_after(about.id, newest=about.message_seq) if wanted.compactions else None,
    )
    lines = timeline_queries.list_timeline(about.id, chosen, before=before, start=start, limit=PAGE + 1)
    shown = lines[:PAGE]
    runs: list[RunRecord] = []
    if shown:
        first = min((line.first_message for line in shown if line.last_message), default=0)
        last = max((line.last_message for line in shown), default=0)
        runs = queries.list_runs_after(about.id, first, last, with_live=shown[0].seq == about.turn_seq)
    now = timezone.now()
    return {
        "turns": [view_turn(line, [run for run in runs if is_in_turn(run, line, about)], now) for line in shown],
        "before": shown[-1].seq if len(lines) > PAGE else None,
        "newest": about.turn_seq,
    }


def load_totals(about: Inspected) -> list[tuple[str, str, str]]:
    """Return what a session comes to as (name, number, remark); five queries, however long it is.

    Compaction is part of the tokens and the money.
    """
    tally, runs, compaction = (
        timeline_queries.tally_session(about.id),
        queries.tally_runs(about.id),
        queries.usage_of_compaction(about.id),
    )
    usage = total_usage(tally.usage, compaction)
    failed = {
        "turn": tally.failed_turns,
        "call": tally.failed_calls,
        "tool": tally.failed_tools,
        "compaction": runs["failed"],
    }
    cached, spent = tally.usage.tokens_cache_read, compaction.cost_micros
    from_cache = _("%(tokens)s from a cache") % {"tokens": format_number(cached)} if cached else ""
    for_summaries = _("%(cost)s for summaries") % {"cost": format_money(spent)} if spent else ""
    live = _("%(count)s not yet over") % {"count": runs["live"]} if runs["live"] else ""
    more = format_number(tally.other_calls)
    others = _("%(count)s more beside turns") % {"count": more} if tally.other_calls else ""
    pruned = _("%(count)s pruned") % {"count": format_number(tally.pruned_tools)} if tally.pruned_tools else ""
    where = ", ".join(format_counted(count, name) for name, count in failed.items() if count)
    return [
        (_("Turns"), format_number(tally.turns), ""),
        (_("Calls"), format_number(tally.calls), others),
        (_("Tools"), format_number(tally.tools), pruned),
        (_("Tokens in"), format_number(usage.tokens_input), from_cache),
        (_("Tokens out"), format_number(usage.tokens_output), ""),
        (_("Cost"), format_money(usage.cost_micros), for_summaries),
        (_("Compactions"), format_number(runs["total"]), live),
        (_("Errors"), format_number(sum(failed.values())), where),
    ]


def is_in_turn(run: RunRecord, line: timeline_queries.TurnLine, about: Inspected) -> bool:
    """Return whether a compaction ended while a turn's messages were the newest; a live one is the newest turn's."""
    if run.after_message_seq is None:
        return line.seq == about.turn_seq
    return line.first_message <= run.after_message_seq <= line.last_message


def view_turn(line: timeline_queries.TurnLine, runs: Sequence[RunRecord], now: datetime) -> dict[str, Any]:
    """Return a turn for its row: ``line``, ``seconds`` (until now for a running one), ``errors``, ``compactions``."""
    return {
        "line": line,
        "seconds": ((line.ended_at or now) - line.created_at).total_seconds(),
        # A turn that fails because of its call has one error, not two.
        "errors": max(bool(line.error_code), line.failed_calls) + line.failed_tools,
        "compactions": len(runs),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    began: datetime
    ended: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.ended - self.began).total_seconds())

    def bar(self, began: datetime | None, ended: datetime | None) -> Bar | None:
        """Return the visible stretch; one without an end reaches to the end of the axis."""
        if began is None or not self.seconds:
            return None
        first, last = (
            round(AXIS * (moment - self.began).total_seconds() / self.seconds)
            for moment in (began, ended or self.ended)
        )
        if last < 0 or first > AXIS:
            return None
        x = min(max(0, first), AXIS - NARROWEST)
        return Bar(x=x, width=max(NARROWEST, min(last, AXIS) - x))

    def offset(self, moment: datetime | None) -> str:
        """Return the time from the turn's beginning to a moment, in words."""
        if moment is None:
            return ""
        seconds, late = (moment - self.began).total_seconds(), (moment - self.ended).total_seconds()
        if seconds < 0:
            return _("before the turn")
        if late >= DAY_SECONDS:
            return _("after the turn")
        if late > 0:
            return _("%(duration)s after the turn") % {"duration": format_duration(late)}
        return f"+{format_duration(seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    kind: str  # message, answer (written by no call of ours), call, tool or compaction
    id: str
    message_seq: int
    title: str
    text: str
    state: str  # what is worth a word: running, failed, …; empty where all is well
    error: str
    offset: str
    began: datetime | None = None
    ended: datetime | None = None
    bar: Bar | None
    usage: UsageRecord | None = None
    output_tokens: int | None = None
    is_pruned: bool = False  # whether the model sees a mark in place of a tool's output
    has_runs: bool = False  # whether a tool may have begun runs of operators
    launched: tuple[Relative, ...] = ()
    summary_ids: tuple[str, ...] = ()  # the first summaries that a compaction wrote


def _error(message: str | None, code: str | None = "") -> str:
    return excerpt(kept_error_text(message or "", code or ""), TEXT) or code or ""


def load_turn_steps(about: Inspected, turn_id: str, *, after: int = 0) -> dict[str, Any]:
    """Return a turn and its steps after the message ``after``; a bounded number of them and of queries.

    :raises TurnNotFoundError: the session has no such turn.
    """
    line = timeline_queries.load_turn_line(about.id, turn_id)
    if line is None:
        raise TurnNotFoundError(turn_id=turn_id)
    found = load_steps(about.id, line.id, after=after, limit=MESSAGES + 1)
    messages, has_more = found[:MESSAGES], len(found) > MESSAGES
    is_newest = line.seq == about.turn_seq and not has_more
    all_runs = queries.list_runs_after(about.id, line.first_message, line.last_message, with_live=is_newest)
    runs = [run for run in all_runs if is_in_turn(run, line, about)]
    tools = [tool for message in messages for tool in message.tools]
    launching = [tool.id for tool in tools if tool.name.lower() in LAUNCHING_TOOLS]
    launched = list_launched(about.id, launching) if launching else {}
    now = timezone.now()
    axis = Axis(began=line.created_at, ended=line.ended_at or now)
    # What was done for each message, and after it the compactions that ended then; the live ones are the last.
    steps: list[StepView] = []
    for message in messages:
        if message.role != "assistant" or not message.calls:
            steps.append(_message(message, axis))
        steps += [_call(call, message, axis) for call in message.calls]
        steps += [_tool(tool, message.seq, launched.get(tool.id, ()), axis) for tool in message.tools]
        steps += [_compaction(run, axis) for run in runs if run.after_message_seq == message.seq]
    steps += [_compaction(run, axis) for run in runs if run.after_message_seq is None]
    return {
        "turn": view_turn(line, runs, now),
        "steps": steps,
        "more_after": messages[-1].seq if has_more else None,
    }


def find_compaction(about: Inspected, run_id: str) -> tuple[str, int]:
    """Return the turn after whose messages a compaction ended, and the message after which its steps are shown there.

    :raises CompactionNotFoundError: the session has no such compaction.
    """
    run = queries.load_run(run_id, session_id=about.id)
    seq = about.message_seq if run.after_message_seq is None else run.after_message_seq
    if (found := timeline_queries.place_of_message(about.id, seq)) is None:
        raise CompactionNotFoundError(run_id=run_id)
    turn_id, place = found
    return turn_id, seq - 1 if place > MESSAGES else 0


def _message(message: MessageStep, axis: Axis) -> StepView:
    is_answer = message.role == "assistant"
    return StepView(
        kind="answer" if is_answer else "message",
        id=message.id,
        message_seq=message.seq,
        title=(show_invisible(message.model) or _("unnamed model"))
        if is_answer
        else str(ROLES.get(message.role, message.role)),
        text=excerpt(message.opening, TEXT),
        state="failed" if message.error_code else "",
        error=_error(message.error_message, message.error_code),
        offset=axis.offset(message.created_at),
        bar=axis.bar(message.created_at, message.created_at),
        usage=message.usage,
    )


def _call(call: CallHeading, message: MessageStep, axis: Axis) -> StepView:
    is_good = call.state == "completed" and call.outcome in (None, "complete")
    opening = excerpt(message.opening, TEXT) if call.message_id else ""
    if call.attempts and call.attempts > 1:
        opening = f"{_('asked %(count)s times') % {'count': call.attempts}} · {opening}"
    return StepView(
        kind="call",
        id=call.id,
        message_seq=message.seq,
        title=show_invisible(call.model),
        text=opening,
        state="" if is_good else (call.outcome or call.state),
        error=_error(timeline_queries.error_of(call), call.error_code),
        offset=axis.offset(call.created_at),
        began=call.created_at,
        ended=call.ended_at or (axis.ended if call.state == "running" else None),
        bar=axis.bar(call.created_at, call.ended_at),
        usage=call.usage,
    )


def _tool(tool: ToolStep, message_seq: int, launched: tuple[Relative, ...], axis: Axis) -> StepView:
    states = {"completed": "", "error": "failed", "pending": "waiting"}
    return StepView(
        kind="tool",
        id=tool.id,
        message_seq=message_seq,
        title=show_invisible(tool.name) or _("unnamed tool"),
        text=excerpt(first_words(tool.input), TEXT),
        state=states.get(tool.state, tool.state),
        error=_error(tool.error),
        offset=axis.offset(tool.started_at),
        began=tool.started_at,
        ended=tool.completed_at,
        bar=axis.bar(tool.started_at, tool.completed_at),
        output_tokens=tool.output_tokens,
        is_pruned=tool.compacted_at is not None,
        has_runs=tool.name in MAP_TOOLS,
        launched=launched,
    )


def _compaction(run: RunRecord, axis: Axis) -> StepView:
    began = run.started_at or run.created_at
    sizes = {"before": format_number(run.tokens_before), "after": format_number(run.tokens_after)}
    count, pruned = len(run.summary_ids), run.pruned_parts or 0
    outputs = ngettext("%(count)s output pruned", "%(count)s outputs pruned", pruned)
    done = (
        _("%(before)s → %(after)s tokens") % sizes if run.tokens_after is not None else "",
        _("level %(level)s") % {"level": run.level} if run.level else "",
        ngettext("%(count)s summary", "%(count)s summaries", count) % {"count": count} if count else "",
        outputs % {"count": format_number(pruned)} if pruned else "",
    )
    title = str(TITLES.get(run.trigger, f"{run.trigger} compaction"))
    if run.turn_ids:
        turns = format_counted(len(run.turn_ids), "named turn")
        title = _("%(compaction)s of %(turns)s") % {"compaction": title, "turns": turns}
    return StepView(
        kind="compaction",
        id=run.id,
        message_seq=run.after_message_seq or 0,
        title=title,
        text=", ".join(filter(None, done)),
        state="" if run.state == "completed" else run.state,
        error=_error(run.error_message, run.error_code),
        offset=axis.offset(began),
        began=began,
        ended=run.ended_at,
        bar=axis.bar(began, run.ended_at),
        usage=UsageRecord(tokens_input=run.tokens_input, tokens_output=run.tokens_output, cost_micros=run.cost_micros),
        summary_ids=tuple(run.summary_ids[:SHOWN_SUMMARIES]),
    )


@signed_in
def timeline(request: HttpRequest, session_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    context = _turns_context(request, about) | {
        "tab": "inspect",
        "totals": load_totals(about),
        "tools": [show_invisible(name) for name in timeline_queries.tools_of_session(about.id)],
        "states": STATES,
    }
    return render(request, "compaction_app/timeline/timeline.html", context)


@signed_in
def turn_rows(request: HttpRequest, session_id: str) -> HttpResponse:
    """Render the turns alone: with another filter, the next page of them, or with ``from`` those that are new."""
    context = _turns_context(request, inspected(request, session_id))
    is_list = context["before"] is None and context["start"] is None
    name = "_turns.html" if is_list else "_turn_rows.html"
    response = render(request, f"compaction_app/timeline/{name}", context)
    if is_list:
        here, query = reverse("inspect", args=[session_id]), context["wanted"].query
        response.headers["HX-Replace-Url"] = f"{here}?{query}" if query else here
    return response


@signed_in
def totals(request: HttpRequest, session_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    return render(request, "compaction_app/timeline/_totals.html", {"about": about, "totals": load_totals(about)})


@signed_in
def turn(request: HttpRequest, session_id: str, turn_id: str) -> HttpResponse:
    context = _steps_context(request, session_id, turn_id)
    seq = context["found"]["turn"]["line"].seq
    beside = timeline_queries.turns_beside(context["about"].id, seq)
    neighbours = {"previous": beside.get(seq - 1), "next": beside.get(seq + 1)}
    return render(request, "compaction_app/timeline/turn.html", context | {"beside": neighbours})


@signed_in
def turn_steps(request: HttpRequest, session_id: str, turn_id: str) -> HttpResponse:
    return render(request, "compaction_app/timeline/_steps.html", _steps_context(request, session_id, turn_id))


@signed_in
def compaction(request: HttpRequest, session_id: str, run_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    turn_id, after = find_compaction(about, run_id)
    there = reverse("inspect-turn", args=[about.id, turn_id])
    return redirect(f"{there}?after={after}#{run_id}" if after else f"{there}#{run_id}")


def _turns_context(request: HttpRequest, about: Inspected) -> dict[str, Any]:
    state, turn = request.GET.get("state", ""), number_in(request, "turn")
    if state and state not in STATES:
        raise InvalidRequest(gettext_noop("state must be a state of turns"), field="state")
    wanted = Wanted(
        state=state,
        errors=request.GET.get("errors") == "1",
        compactions=request.GET.get("compactions") == "1",
        tool=printable(request.GET.get("tool", "").strip()),
        q=printable(request.GET.get("q", "").strip()[: timeline_queries.SEARCH_LENGTH]),
        turn=None if turn is None else min(turn, LARGEST - 1),
    )
    before, start = number_in(request, "before"), number_in(request, "from")
    return {
        "about": about,
        "wanted": wanted,
        "before": before,
        "start": start,
        "timeline": load_timeline(about, wanted, before=before, start=start),
    }


def _steps_context(request: HttpRequest, session_id: str, turn_id: str) -> dict[str, Any]:
    about = inspected(request, session_id)
    after = number_in(request, "after") or 0
    found = load_turn_steps(about, turn_id, after=after)
    return {"about": about, "tab": "inspect", "found": found, "after": after, "axis": AXIS}

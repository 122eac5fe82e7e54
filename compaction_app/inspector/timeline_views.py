"""The pages of the timeline: turns, and inside each its calls, tools and compactions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from compaction_app.inspector.timeline import (
    AXIS,
    Wanted,
    find_compaction,
    load_timeline,
    load_totals,
    load_turn_steps,
)
from mnesis_core.errors import InvalidRequest
from mnesis_core.records import TurnState
from mnesis_core.text import printable
from sessions_app.pages.lookup import LARGEST
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record.timeline_queries import SEARCH_LENGTH, tools_of_session, turns_beside

STATES = [state.value for state in TurnState]


@signed_in
def timeline(request: HttpRequest, session_id: str) -> HttpResponse:
    """Every turn of a session, the newest first."""
    about = inspected(request, session_id)
    context = _turns(request, about) | {
        "tab": "inspect",
        "totals": load_totals(about),
        "tools": [show_invisible(name) for name in tools_of_session(about.id)],
        "states": STATES,
    }
    return render(request, "compaction_app/inspect_timeline.html", context)


@signed_in
def turn_rows(request: HttpRequest, session_id: str) -> HttpResponse:
    """The turns alone: with another filter, the next page of them, or with ``from`` those that are new."""
    context = _turns(request, inspected(request, session_id))
    is_list = context["before"] is None and context["start"] is None
    name = "_inspect_turns.html" if is_list else "_inspect_turn_rows.html"
    response = render(request, f"compaction_app/{name}", context)
    if is_list:
        here, query = reverse("inspect", args=[session_id]), context["wanted"].query
        response.headers["HX-Replace-Url"] = f"{here}?{query}" if query else here
    return response


@signed_in
def totals(request: HttpRequest, session_id: str) -> HttpResponse:
    """What the session comes to, alone."""
    about = inspected(request, session_id)
    return render(request, "compaction_app/_inspect_totals.html", {"about": about, "totals": load_totals(about)})


@signed_in
def turn(request: HttpRequest, session_id: str, turn_id: str) -> HttpResponse:
    """One turn with its steps."""
    context = _steps(request, session_id, turn_id)
    seq = context["found"].turn.line.seq
    beside = turns_beside(context["about"].id, seq)
    neighbours = {"previous": beside.get(seq - 1), "next": beside.get(seq + 1)}
    return render(request, "compaction_app/inspect_turn.html", context | {"beside": neighbours})


@signed_in
def turn_steps(request: HttpRequest, session_id: str, turn_id: str) -> HttpResponse:
    """The steps of a turn alone."""
    return render(request, "compaction_app/_inspect_steps.html", _steps(request, session_id, turn_id))


@signed_in
def compaction(request: HttpRequest, session_id: str, run_id: str) -> HttpResponse:
    """Where in the timeline a compaction is."""
    about = inspected(request, session_id)
    turn_id, after = find_compaction(about, run_id)
    there = reverse("inspect-turn", args=[about.id, turn_id])
    return redirect(f"{there}?after={after}#{run_id}" if after else f"{there}#{run_id}")


def _turns(request: HttpRequest, about: Inspected) -> dict[str, Any]:
    state, turn = request.GET.get("state", ""), number_in(request, "turn")
    if state and state not in STATES:
        raise InvalidRequest("state must be a state of turns", field="state")
    wanted = Wanted(
        state=state,
        errors=request.GET.get("errors") == "1",
        compactions=request.GET.get("compactions") == "1",
        tool=printable(request.GET.get("tool", "").strip()),
        q=printable(request.GET.get("q", "").strip()[:SEARCH_LENGTH]),
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


def _steps(request: HttpRequest, session_id: str, turn_id: str) -> dict[str, Any]:
    about = inspected(request, session_id)
    after = number_in(request, "after") or 0
    found = load_turn_steps(about, turn_id, after=after)
    return {"about": about, "tab": "inspect", "found": found, "after": after, "axis": AXIS}

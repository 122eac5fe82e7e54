"""The pages *Memory*: of a session, its facts with the words that they rest on; of a person, what reaches all sessions."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import pgettext_lazy

from compaction_app.facts.queries import HeldFact, count_facts, list_facts, list_held_facts
from compaction_app.facts.remember import HOLDS_FOR_ORGANISATION
from mnesis_core.facts import LONGEST_STATEMENT, LONGEST_SUBJECT, FactKind, FactState
from mnesis_core.text import printable
from sessions_app.pages.markdown import shown_title
from sessions_app.pages.permissions import inspected
from sessions_app.pages.views import in_project, number_in, reader_of, signed_in
from sessions_app.record.project_store import load_project, read_projects
from sessions_app.record.session_queries import titles_of

PAGE = 50
LONGEST_QUERY = 200
KINDS = {
    FactKind.PREFERENCE.value: pgettext_lazy("kind of fact", "Preference"),
    FactKind.DECISION.value: pgettext_lazy("kind of fact", "Decision"),
    FactKind.CONSTRAINT.value: pgettext_lazy("kind of fact", "Constraint"),
    FactKind.ENTITY.value: pgettext_lazy("kind of fact", "Entity"),
    FactKind.OPEN_TASK.value: pgettext_lazy("kind of fact", "Open task"),
    FactKind.INSTRUCTION.value: pgettext_lazy("kind of fact", "Instruction"),
}
STATES = {
    "": pgettext_lazy("facts", "live"),
    "superseded": pgettext_lazy("facts", "superseded"),
    "withdrawn": pgettext_lazy("facts", "withdrawn"),
    "forbidden": pgettext_lazy("facts", "forbidden"),
    "all": pgettext_lazy("facts", "any"),
}


@signed_in
def held_facts(request: HttpRequest) -> HttpResponse:
    return render(request, "compaction_app/memory/held_facts.html", _held_context(request))


@signed_in
def held_fact_rows(request: HttpRequest) -> HttpResponse:
    return render(request, "compaction_app/memory/_held_fact_rows.html", _held_context(request))


def _held_context(request: HttpRequest) -> dict[str, Any]:
    """Read a page of facts, all that reach the reader's sessions or those of one of the reader's projects."""
    reader, project_id = reader_of(request), request.GET.get("project", "")
    project = load_project(project_id, user_id=reader) if project_id else None
    before = request.GET.get("before") or None
    found = list_held_facts(reader, project_id=project.id if project else None, before=before, limit=PAGE + 1)
    facts = found[:PAGE]
    projects = read_projects({fact.project_id for fact in facts if fact.project_id}, user_id=reader)
    may_hold_for_all = _may_hold_for_all(request)

    def may_let_go(fact: HeldFact) -> bool:
        in_project = projects.get(fact.project_id or "")
        return fact.is_own or (in_project.is_owner if in_project else may_hold_for_all)

    more = {"project": project.id} if project else {}
    return {
        "project": project,
        "items": [
            (fact, KINDS.get(fact.kind, fact.kind), projects.get(fact.project_id or ""), may_let_go(fact))
            for fact in facts
        ],
        "is_first": "before" not in request.GET,
        "more": urlencode(more | {"before": facts[-1].id}) if len(found) > PAGE else "",
    }


def _may_hold_for_all(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "has_perm", lambda name: False)(HOLDS_FOR_ORGANISATION))


@signed_in
def memory(request: HttpRequest, session_id: str) -> HttpResponse:
    return render(request, "compaction_app/memory/memory.html", _memory_context(request, session_id))


@signed_in
def memory_rows(request: HttpRequest, session_id: str) -> HttpResponse:
    return render(request, "compaction_app/memory/_memory_rows.html", _memory_context(request, session_id))


def _memory_context(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Read a page of facts; a fixed number of queries, however many facts there are."""
    about = inspected(request, session_id)
    query = printable(request.GET.get("q", "").strip())[:LONGEST_QUERY]
    kind, state = request.GET.get("kind", ""), request.GET.get("state", "")
    kind, state = kind if kind in KINDS else "", state if state in STATES else ""
    wanted = None if state == "all" else FactState(state or FactState.LIVE)
    found = list_facts(
        about.id, query=query, kind=kind or None, state=wanted, before=number_in(request, "before"), limit=PAGE + 1
    )
    facts = found[:PAGE]
    more = {name: value for name, value in (("q", query), ("kind", kind), ("state", state)) if value}
    # Where copies came from, as far as the owner looks at it and may see it.
    elsewhere = {fact.of_session_id for fact in facts if fact.is_copy and about.is_own}
    origins = {id: shown_title(title) for id, title in titles_of(elsewhere, owner_id=about.owner_id).items()}
    may_write = about.is_own and not about.archived_at
    return {
        "about": about,
        "tab": "inspect-memory",
        "items": [(fact, KINDS.get(fact.kind, fact.kind), origins.get(fact.of_session_id, "")) for fact in facts],
        "may_hold_for_all": _may_hold_for_all(request),
        "project": in_project(about).get("project") if may_write else None,
        "total": count_facts(about.id),
        "live": count_facts(about.id, state=FactState.LIVE),
        "q": query,
        "kind": kind,
        "state": state,
        "kinds": KINDS,
        "states": STATES,
        "is_filtered": bool(query or kind or state),
        "may_write": may_write,
        "longest_statement": LONGEST_STATEMENT,
        "longest_subject": LONGEST_SUBJECT,
        "more": urlencode(more | {"before": facts[-1].created_seq}) if len(found) > PAGE else "",
    }

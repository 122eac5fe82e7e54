"""Saved prompts: their list, and the page of one."""

from __future__ import annotations

from operator import attrgetter

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from mnesis_core.text import printable
from sessions_app.assistants.prompt_queries import list_prompts, load_prompt
from sessions_app.pages.transcript import load_said
from sessions_app.pages.views import reader_of, signed_in
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import page_of

PAGE = 50


@signed_in
def prompts(request: HttpRequest) -> HttpResponse:
    """Return the page of all saved prompts, or with a cursor only the rows after it.

    Of a ``message`` in a ``session``, its words are in the form of a new prompt.
    """
    cursor, query = request.GET.get("cursor") or None, printable(request.GET.get("q", "").strip())
    found = list_prompts(user_id=reader_of(request), query=query, before=cursor, limit=PAGE + 1)
    page = page_of(found, PAGE, attrgetter("id"))
    context = {"prompts": page["items"], "next_cursor": page["next_cursor"] or "", "query": query}
    if message_id := request.GET.get("message"):
        session = load_session(request.GET.get("session", ""), owner_id=reader_of(request))
        text, _ = load_said(session.id, message_id)
        context["prompt"] = {"text": text}
    return render(request, f"sessions_app/prompts/{'_rows' if cursor else 'prompts'}.html", context)


@signed_in
def prompt(request: HttpRequest, prompt_id: str) -> HttpResponse:
    return render(
        request, "sessions_app/prompts/prompt.html", {"prompt": load_prompt(prompt_id, user_id=reader_of(request))}
    )

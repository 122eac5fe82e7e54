"""The page of a new chat, with examples and a site's first steps, and the pages of the prompts that are saved for one."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import attrgetter

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _

from mnesis_core.text import printable
from sessions_app.assistants.assistant_store import list_assistants
from sessions_app.assistants.prompt_store import list_prompts, load_prompt
from sessions_app.conf import has_real_models
from sessions_app.pages.permissions import may_administer
from sessions_app.pages.transcript import load_said
from sessions_app.pages.views import model_choices, reader_of, signed_in, signed_in_to_post
from sessions_app.record.session_queries import has_imports, load_session
from sessions_app.schemas import page_of

COOKIE = "mnesis_first_steps"
COOKIE_SECONDS = 400 * 24 * 3600  # the longest that browsers keep one
HIDDEN = "hidden"
# The newest ones, as links and in the picker; the others are on the page of all assistants.
MOST_ASSISTANTS, MOST_PICKED = 6, 50
EXAMPLES = (
    _("Explain what a context window is, as you would to a friend."),
    _("Plan a four-day walk in the Pyrenees, with what to pack."),
    _("Tell me a long story about a lighthouse."),
)
DEMO_EXAMPLES = (
    (_("Tell it something to keep in mind"), "Remember: the harbour code is Tern-4471."),
    (_("See it think before it answers"), "!think What is 12 times 7?"),
    (_("Have it call a tool"), '!tool calculator {"expression": "6 * 7"}'),
    (_("Hand a task to a sub-agent"), '!tool task {"prompt": "What is 6 * 7?"}'),
    (_("Get 700 words: five times, and older messages are summarised"), "!long 700"),
    (_("Get a slow answer: reload the page meanwhile"), "!slow 200 Tell me about the sea."),
)
"""What the demo model can show, each with the message that makes it do so (``mnesis_core.providers.demo``)."""
PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSteps:
    """The steps of setting up a site, and whether each is done."""

    has_model: bool
    has_people: bool
    has_imports: bool


@signed_in
def new_chat(request: HttpRequest) -> HttpResponse:
    assistants = list_assistants(user_id=reader_of(request), limit=MOST_PICKED)
    context = {
        "assistants": assistants[:MOST_ASSISTANTS],
        "picked_from": assistants,
        "examples": EXAMPLES,
        "demo_examples": DEMO_EXAMPLES,
        "steps": first_steps(request),
    }
    return render(request, "sessions_app/new_chat/new_chat.html", model_choices(request) | context)


def first_steps(request: HttpRequest) -> FirstSteps | None:
    """Return the steps to show, or ``None`` if they are done, were hidden on this device, or are for others to take."""
    if request.COOKIES.get(COOKIE) == HIDDEN or not may_administer(request, "sessions_app.add_languagemodel"):
        return None
    steps = FirstSteps(
        has_model=has_real_models(),
        has_people=User.objects.filter(is_active=True)[1:2].exists(),
        has_imports=has_imports(owner_id=reader_of(request)),
    )
    return None if all(astuple(steps)) else steps


@signed_in_to_post
def hide_first_steps(request: HttpRequest) -> HttpResponse:
    response = redirect("new-chat")
    response.set_cookie(
        COOKIE, HIDDEN, max_age=COOKIE_SECONDS, httponly=True, samesite="Lax", secure=request.is_secure()
    )
    return response


# Saved prompts: their list, and the page of one.


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

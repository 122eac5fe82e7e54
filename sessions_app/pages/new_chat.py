"""The page of a new chat: examples to begin with, and a site's first steps for those who can take them."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _

from sessions_app.assistants.assistant_queries import list_assistants
from sessions_app.conf import has_real_models
from sessions_app.pages.permissions import may_administer
from sessions_app.pages.views import model_choices, reader_of, signed_in, signed_in_to_post
from sessions_app.record.session_queries import has_imports

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

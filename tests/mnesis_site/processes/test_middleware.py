"""Django's middleware under asyncio: which of its steps take a thread, and that those which do have their effect."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.contrib.messages import get_messages, success
from django.core.signals import request_started
from django.db import close_old_connections, reset_queries
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.urls import path

from mnesis_site import middleware
from mnesis_site.asgi import application
from sessions_app.database import threads
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
in_thread = middleware.in_waiting_thread


async def note(request: HttpRequest) -> HttpResponse:
    success(request, "The tide turns.")
    return HttpResponse()


async def tell(request: HttpRequest) -> HttpResponse:
    return HttpResponse(" ".join(str(message) for message in get_messages(request)))


async def keep(request: HttpRequest) -> HttpResponse:
    request.session["kept"] = 1
    return HttpResponse()


urlpatterns = [path("note", note), path("tell", tell), path("keep", keep)]
OWN_PAGES = pytest.mark.urls(__name__)


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The middleware whose steps were run in the request's thread."""
    steps: list[str] = []

    def noted(step: Any) -> Any:
        steps.append(f"{type(step.__self__).__name__} {step.__name__}")
        return in_thread(step)

    monkeypatch.setattr(middleware, "in_waiting_thread", noted)
    return steps


async def test_a_request_with_a_key_makes_no_thread_before_its_answer(ada: User, monkeypatch: Any) -> None:
    for receiver in (
        close_old_connections,
        reset_queries,
    ):  # as in a server: test clients and counts connect them again
        request_started.disconnect(receiver)
    key = await db(create_key, owner_id=ada.pk)
    made: list[Any] = []
    submit = threads._RequestThread.submit

    def submitted(thread: Any, *args: Any, **named: Any) -> Any:
        made.append(args)
        return submit(thread, *args, **named)

    monkeypatch.setattr(threads._RequestThread, "submit", submitted)
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode()), (b"x-mnesis-mode", b"gateway")]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": headers}
    asked = ApplicationCommunicator(application, scope)
    await asked.send_input({"type": "http.request", "body": b"{}"})
    begun = await asked.receive_output(10)
    assert (begun["status"], made) == (400, [])
    given = {name.lower(): value for name, value in begun["headers"]}
    assert b"default-src 'none'" in given[b"content-security-policy"]
    assert (given[b"x-frame-options"], given[b"x-content-type-options"]) == (b"DENY", b"nosniff")
    assert b"content-length" in given
    await asked.receive_output(10)
    await asked.wait(10)


@OWN_PAGES
async def test_a_session_is_stored_in_the_thread_of_its_request(handed_over: list[str]) -> None:
    client = AsyncClient()
    answer = await client.get("/keep")
    assert answer.cookies["sessionid"].value
    assert handed_over == ["Sessions process_response"]
    stored = await db(lambda: dict(client.session))
    assert stored == {"kept": 1}


@OWN_PAGES
async def test_a_message_is_shown_once_by_a_later_page(handed_over: list[str]) -> None:
    client = AsyncClient()
    await client.get("/note")
    assert (await client.get("/tell")).content == b"The tide turns."
    assert (await client.get("/tell")).content == b""
    assert {*handed_over} == {"Messages process_response"}


async def test_a_form_needs_its_token(ada: User, handed_over: list[str]) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    form = {"username": "ada", "password": "correct horse"}
    assert (await client.post("/sign-in/", form)).status_code == 403
    page = await client.get("/sign-in/")
    token = page.context["csrf_token"]
    signed_in = await client.post("/sign-in/", form | {"csrfmiddlewaretoken": str(token)})
    assert signed_in.status_code == 302
    assert handed_over.count("Csrf process_view") == 2
    assert (await client.get("/")).status_code == 200

"""The page of a new chat: its examples, and the first steps of a site for those who can take them."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils.html import escape

from mnesis_core.llm.interface import ModelSpec, settle_limits
from sessions_app.assistants.assistant_store import create_assistant
from sessions_app.llm.model_store import put_model
from sessions_app.pages.new_chat import DEMO_EXAMPLES, MOST_ASSISTANTS
from sessions_app.record import session_store
from tests.support.people.cast import make_user
from tests.support.people.pages import Ask

STEPS = "Set up this site"


def page_of(client: Client) -> str:
    answer = client.get("/")
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_demo_model_shows_what_it_can_do(ask: Ask) -> None:
    page = ask("/")
    for _, example in DEMO_EXAMPLES:
        assert f'data-example="{escape(example)}"' in page


@pytest.mark.slow
def test_assistants_are_picked_beside_the_model_where_there_are_any(reader: User, browser: Client) -> None:
    assert 'id="assistant"' not in page_of(browser)
    for number in range(MOST_ASSISTANTS + 1):
        create_assistant(owner_id=reader.pk, name=f"Pilot {number} <b>", model="demo")
    create_assistant(owner_id=make_user("eve").pk, name="Of Eve")
    page = page_of(browser)
    assert (page.count('data-model="demo"'), page.count('class="assistant-chip"')) == (
        MOST_ASSISTANTS + 1,
        MOST_ASSISTANTS,
    )
    assert ("Pilot 0 &lt;b&gt;</option>" in page, "Of Eve" in page) == (True, False)


def test_the_first_steps_are_for_those_who_may_add_models(reader: User, browser: Client) -> None:
    assert STEPS not in page_of(browser)
    reader.is_staff = True
    reader.save()
    assert STEPS not in page_of(browser)
    reader.user_permissions.add(Permission.objects.get(codename="add_languagemodel"))
    assert STEPS in page_of(browser)


def test_a_step_is_done_when_it_is(inspector: Client) -> None:
    assert page_of(inspector).count("is-done") == 0
    put_model(ModelSpec(alias="demo2", litellm_model="demo/chat", **settle_limits()))
    assert page_of(inspector).count("is-done") == 0
    put_model(ModelSpec(alias="big", litellm_model="openai/x", **settle_limits()))
    assert page_of(inspector).count("is-done") == 1
    owner = User.objects.get(is_superuser=True)
    session_store.create_session(owner=make_user("grace"), model="demo", origin="import:chatgpt")
    page = page_of(inspector)
    assert STEPS in page  # conversations of other people are not one's own
    session_store.create_session(owner=owner, model="demo", origin="import:chatgpt")
    assert STEPS not in page_of(inspector)


def test_hidden_steps_stay_hidden_on_that_device(inspector: Client) -> None:
    assert inspector.get("/first-steps/hide/").status_code == 405
    assert inspector.post("/first-steps/hide/").status_code == 302
    assert STEPS not in page_of(inspector)


@pytest.mark.django_db
def test_strangers_hide_nothing(client: Client) -> None:
    assert client.post("/first-steps/hide/").url.startswith("/sign-in/")

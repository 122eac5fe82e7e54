"""Who may use a model: for everybody else there is none of its name, wherever a model is chosen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agents_app.turns import lifecycle
from agents_app.turns.loop import next_model
from mnesis_core.errors import ModelNotFoundError
from mnesis_core.llm.interface import ModelSpec, settle_limits
from sessions_app.conf import get_model, get_spec, list_models
from sessions_app.llm.model_store import Audience, allow_model, create_key, enter_model
from tests.support.people.cast import make_user

UNKNOWN = "no model is called 'inner'"


def enter(alias: str, *, fallbacks: tuple[str, ...] = (), audience: Audience | None = None) -> None:
    spec = ModelSpec(alias=alias, litellm_model="demo/chat", fallbacks=fallbacks, **settle_limits())
    enter_model(spec, api_key_env="", audience=audience)


def key_of(user: User) -> dict[str, str]:
    return {"Authorization": f"Bearer {create_key(owner_id=user.pk)}"}


def names(user: User) -> list[str]:
    return [spec.alias for spec in list_models(user_id=user.pk)]


@pytest.fixture
def grace(db: None) -> User:
    return make_user("grace")


@pytest.fixture
def inner(grace: User) -> None:
    """A model for one group, in which Grace is."""
    group = Group.objects.create(name="inner circle")
    group.user_set.add(grace)
    enter("inner", audience=Audience(groups=[group]))


def test_a_model_is_for_everybody_until_somebody_is_named(reader: User, grace: User) -> None:
    enter("open")
    assert names(reader) == names(grace) == ["demo", "open"]


def test_a_group_or_a_person_may_use_what_is_theirs_and_others_have_never_heard_of_it(
    reader: User, grace: User, inner: None
) -> None:
    assert names(grace) == ["demo", "inner"]
    assert names(reader) == ["demo"]
    with pytest.raises(ModelNotFoundError, match=UNKNOWN) as refused:
        get_spec("inner", user_id=reader.pk)
    with pytest.raises(ModelNotFoundError) as unknown:
        get_spec("nosuch", user_id=reader.pk)
    assert str(refused.value).replace("inner", "nosuch") == str(unknown.value)
    allow_model("inner", Audience(users=[reader]))
    assert (names(reader), names(grace)) == (["demo", "inner"], ["demo"])
    allow_model("inner", None)
    assert names(grace) == ["demo", "inner"]


def test_a_restricted_model_whose_last_group_is_gone_is_not_open_to_all(reader: User, inner: None) -> None:
    Group.objects.all().delete()
    assert names(reader) == ["demo"]


def test_an_administrator_may_use_every_model(ada: User, inner: None) -> None:
    assert names(ada) == ["demo", "inner"]
    assert get_model("inner", user_id=ada.pk).spec.alias == "inner"


def test_the_shipped_model_can_be_restricted_too(reader: User, grace: User) -> None:
    enter("demo", audience=Audience(users=[grace]))
    assert (names(reader), names(grace)) == ([], ["demo"])
    with pytest.raises(ModelNotFoundError):
        get_spec("demo", user_id=reader.pk)


def test_fallbacks_that_are_not_a_persons_are_not_named_to_them(reader: User, grace: User, inner: None) -> None:
    enter("open", fallbacks=("inner", "demo"))
    assert [spec.fallbacks for spec in list_models(user_id=reader.pk)] == [(), ("demo",)]
    assert [spec.fallbacks for spec in list_models(user_id=grace.pk)][-1] == ("inner", "demo")


def test_a_session_is_neither_begun_nor_configured_with_somebody_elses_model(reader: User, inner: None) -> None:
    with pytest.raises(ModelNotFoundError, match=UNKNOWN):
        lifecycle.create_session(owner=reader, model="inner")
    with pytest.raises(ModelNotFoundError, match=UNKNOWN):
        lifecycle.create_session(owner=reader, config={"fallbacks": ["inner"]})
    session = lifecycle.create_session(owner=reader)
    with pytest.raises(ModelNotFoundError, match=UNKNOWN):
        lifecycle.update_session(session.id, owner_id=reader.pk, config={"fallbacks": ["inner"]})


def test_what_was_taken_away_does_not_go_on_in_old_sessions(grace: User, inner: None) -> None:
    session = lifecycle.create_session(owner=grace, model="inner", config={"fallbacks": ["inner", "demo"]})
    asked = next_model(session, ("inner", "demo"))
    assert asked is not None
    assert asked[0].spec.alias == "inner"
    allow_model("inner", Audience())
    asked = next_model(session, ("inner", "demo"))
    assert asked is not None
    assert asked[0].spec.alias == "demo"
    with pytest.raises(ModelNotFoundError, match=UNKNOWN):
        get_model(session.model, user_id=session.owner_id)


@pytest.mark.django_db(transaction=True)  # some endpoints look from other threads
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/sessions", {"model": "inner"}),
        ("/api/operators/llm-map", {"template": "{{ item }}", "items": ["a"], "model": "inner"}),
        ("/api/operators/agentic-map", {"template": "{{ item }}", "items": ["a"], "model": "inner"}),
        ("/v1/chat/completions", {"model": "inner", "messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/messages", {"model": "inner", "messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/messages/count_tokens", {"model": "inner", "messages": [{"role": "user", "content": "Hello"}]}),
    ],
)
def test_no_endpoint_opens_somebody_elses_model(path: str, body: dict[str, Any], reader: User, inner: None) -> None:
    answer = Client(headers=key_of(reader)).post(path, json.dumps(body), content_type="application/json")
    assert answer.status_code == 404, answer.content
    assert "no model is called" in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_turn_asks_no_model_that_is_somebody_elses(reader: User, inner: None) -> None:
    session = lifecycle.create_session(owner=reader)
    body = json.dumps({"message": "Hello", "model": "inner"})
    answer = Client(headers=key_of(reader)).post(
        f"/api/sessions/{session.id}/turns", body, content_type="application/json"
    )
    assert answer.status_code == 404, answer.content
    assert "no model is called" in answer.content.decode()


def test_no_list_names_somebody_elses_model(reader: User, grace: User, inner: None) -> None:
    for user, is_theirs in ((reader, False), (grace, True)):
        client = Client(headers=key_of(user))
        client.force_login(user)
        for path in ("/api/models", "/v1/models", "/", "/models/"):
            assert ("inner" in client.get(path).content.decode()) is is_theirs, path
        assert client.get("/v1/models/inner").status_code == (200 if is_theirs else 404)

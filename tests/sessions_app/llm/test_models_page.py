"""The pages of models: what people see, what administrators enter, and that no key is ever on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mnesis_core.llm.interface import LimitSource, ModelSpec, settle_limits
from sessions_app.conf import UNREADABLE_KEY, get_spec
from sessions_app.llm.model_store import check_model, find_model_entry, put_model
from sessions_app.models import LanguageModel
from tests.support.people.cast import make_user
from tests.support.sites.listed import list_for_pages

ENTERED = {
    "alias": "big", "litellm_model": "openai/big", "api_base": "http://127.0.0.1:9/v1", "api_key_env": "BIG_KEY",
    "context_window": "8000", "max_output_tokens": "1000", "input_price": "2.5", "output_price": "10", "fallbacks": "demo",
    "parameters": '{"temperature": 0.2, "effort": "low"}', "timeout_seconds": "60", "total_timeout_seconds": "600", "audience": "everybody",
}  # fmt: skip
HOSTILE = "<script>alert(1)</script>\u202egpj"


@pytest.fixture(autouse=True)
def listed_things(settings: Any) -> None:
    list_for_pages(settings)


def text_of(client: Client, path: str, **values: Any) -> str:
    answer = client.post(path, values, follow=True) if values else client.get(path)
    assert answer.status_code == 200, answer.content
    return str(answer.content.decode())


def put(alias: str, **values: Any) -> None:
    put_model(ModelSpec(**{"alias": alias, "litellm_model": "openai/x", **settle_limits()} | values))


def test_people_read_what_they_may_use_and_find_no_administration(ask: Callable[..., str], browser: Client) -> None:
    put("big", litellm_model="openai/secret-name", context_window=128_000)
    page = ask("/models/")
    assert "128,000" in page
    assert "Unknown" in page
    assert "secret-name" not in page
    for path in ("/models/add/", "/models/big/change/", "/models/big/check/", "/models/big/remove/"):
        assert browser.get(path).status_code in (404, 405), path
        assert browser.post(path, ENTERED).status_code == 404, path
    assert browser.get("/models/known/").status_code == 404
    assert LanguageModel.objects.count() == 1


def test_staff_need_the_permission_for_each_verb(reader: User, browser: Client) -> None:
    reader.is_staff = True
    reader.save()
    put("big")
    assert browser.get("/models/add/").status_code == 404
    reader.user_permissions.add(Permission.objects.get(codename="change_languagemodel"))
    assert "Change" in text_of(browser, "/models/")
    assert "/remove/" not in text_of(browser, "/models/")
    assert browser.get("/models/big/change/").status_code == 200
    assert browser.get("/models/known/").status_code == 200
    assert browser.post("/models/big/remove/").status_code == 404


def test_who_is_not_signed_in_is_asked_to(client: Client, db: None) -> None:
    for path in ("/models/", "/models/add/", "/models/big/change/"):
        answer = client.get(path)
        assert (answer.status_code, answer.url) == (302, f"/sign-in/?next={path}")


def test_a_model_is_added_changed_and_removed(inspector: Client) -> None:
    page = text_of(inspector, "/models/add/", **ENTERED)
    assert "big is saved" in page
    assert "$2.50" in page
    row = LanguageModel.objects.get()
    assert (row.api_key_env, row.context_window, row.input_micros_per_million) == ("BIG_KEY", 8_000, 2_500_000)
    assert (row.prices_source, row.fallbacks) == ("configured", ["demo"])
    assert row.parameters == {"temperature": 0.2, "effort": "low"}
    form = text_of(inspector, "/models/big/change/")
    assert 'value="8000"' in form
    assert 'name="alias"' not in form
    text_of(
        inspector, "/models/big/change/", **ENTERED | {"alias": "other", "context_window": "", "max_output_tokens": ""}
    )
    row.refresh_from_db()
    assert (row.alias, row.context_window_source) == ("big", "default")
    assert "Remove <bdi>big</bdi>?" in text_of(inspector, "/models/big/remove/")
    assert "big was removed" in text_of(inspector, "/models/big/remove/", sure="1")
    assert not LanguageModel.objects.exists()


def test_what_is_learnt_of_a_model_stays_until_it_is_another_one(inspector: Client) -> None:
    put("big", litellm_model="openai/big", shared_ratio=1.25)
    text_of(inspector, "/models/big/change/", **ENTERED)
    assert LanguageModel.objects.get().shared_ratio == 1.25
    text_of(inspector, "/models/big/change/", **ENTERED | {"litellm_model": "openai/other"})
    assert LanguageModel.objects.get().shared_ratio is None


def test_a_model_is_allowed_to_groups_and_people(inspector: Client) -> None:
    Group.objects.create(name="writers")
    grace = make_user("grace")
    page = text_of(
        inspector, "/models/add/", **ENTERED | {"audience": "named", "groups": ["writers"], "users": "grace,\n"}
    )
    assert "group <bdi>writers</bdi>" in page
    assert "<bdi>grace</bdi>" in page
    form = text_of(inspector, "/models/big/change/")
    assert "checked" in form
    inspector.force_login(grace)
    assert 'id="model-big"' in text_of(inspector, "/models/")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alias", "two words"),
        ("alias", ".."),
        ("alias", "a" * 101),
        ("api_key_env", "sk-proj-abcdefghijk"),
        ("api_base", "file:///etc/passwd"),
        ("api_base", "https://me:hunter2-pass@host/v1"),
        ("api_base", "https://host/v1?key=hunter2-pass"),
        ("max_output_tokens", "8001"),
        ("context_window", "0"),
        ("context_window", "1" * 30),
        ("input_price", "-1"),
        ("output_price", ""),
        ("input_price", "nan"),
        ("input_price", "inf"),
        ("timeout_seconds", "nan"),
        ("total_timeout_seconds", "0"),
        ("fallbacks", "demo, nosuch"),
        ("parameters", "{"),
        ("parameters", "[1]"),
        ("parameters", '{"heat": 1}'),
        ("parameters", '{"temperature": 9}'),
        ("parameters", '{"verbosity": "low"}'),  # no server of one's own is known to take it
        ("parameters", '{"a":' * 3_000 + "1" + "}" * 3_000),
        ("audience", "named"),
        ("users", "nobody-at-all"),
        ("groups", "nosuch"),
        ("litellm_model", "\x00"),
    ],
)
def test_what_could_not_work_is_refused_beside_its_field(field: str, value: str, inspector: Client) -> None:
    answer = inspector.post("/models/add/", ENTERED | {field: value})
    assert answer.status_code == 200
    assert field in answer.context["form"].errors
    assert "errorlist" in answer.content.decode()
    assert not LanguageModel.objects.exists()


@pytest.mark.parametrize(
    ("field", "value"), [("api_key_env", "sk-hunter2-pass"), ("api_base", "https://a:hunter2-pass@b/")]
)
def test_a_key_that_was_pasted_into_the_wrong_field_is_not_shown_again(
    field: str, value: str, inspector: Client
) -> None:
    answer = inspector.post("/models/add/", ENTERED | {field: value})
    assert "hunter2-pass" not in answer.content.decode()


def test_no_page_shows_a_key(inspector: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "the-secret-itself")
    text_of(inspector, "/models/add/", **ENTERED)
    put("loose", api_base="https://me:the-secret-itself@host/v1?key=the-secret-itself")
    for path in ("/models/", "/models/big/change/", "/models/big/remove/"):
        assert "the-secret-itself" not in text_of(inspector, path), path
    assert "BIG_KEY" in text_of(inspector, "/models/")


def test_a_check_asks_one_word_and_its_outcome_stays_until_the_model_is_changed(inspector: Client) -> None:
    text_of(
        inspector,
        "/models/add/",
        **ENTERED | {"parameters": "", "litellm_model": "demo/chat", "api_base": "", "api_key_env": ""},
    )
    assert "not checked" in text_of(inspector, "/models/")
    page = text_of(inspector, "/models/big/check/", go="1")
    assert "big answered after" in page
    assert "tokens, " in page
    assert LanguageModel.objects.get().last_check["input_tokens"] > 0
    text_of(inspector, "/models/big/change/", **ENTERED)
    assert LanguageModel.objects.get().last_check == {}


def test_a_check_that_fails_says_why(inspector: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "the-secret-itself")
    text_of(inspector, "/models/add/", **ENTERED | {"timeout_seconds": "5", "total_timeout_seconds": "10"})
    page = text_of(inspector, "/models/big/check/", go="1")
    assert "big gave no answer" in page
    assert "does not answer" in page
    assert "the-secret-itself" not in page
    assert "the-secret-itself" not in str(LanguageModel.objects.get().last_check)


def test_hostile_names_run_nothing(inspector: Client) -> None:
    put(HOSTILE, litellm_model=HOSTILE, api_base=f"http://{HOSTILE}/", fallbacks=(HOSTILE,))
    Group.objects.create(name=HOSTILE)
    LanguageModel.objects.update(
        last_check={
            "at": "2026-01-01T00:00:00+00:00", "milliseconds": 5, "answer": HOSTILE, "finish_reason": HOSTILE,
            "input_tokens": 1, "output_tokens": 1, "usage_source": "provider", "capabilities": [], "code": "", "problem": "",
        }
    )  # fmt: skip
    for path in ("/models/", "/models/add/"):
        page = text_of(inspector, path)
        assert "<script>alert" not in page
    assert "\u202e" not in text_of(inspector, "/models/")


@pytest.mark.parametrize("alias", ["nosuch", "%00", "%ED%A0%80", "a/b/c", "x" * 5_000])
def test_an_address_of_no_model_is_not_found(alias: str, inspector: Client) -> None:
    for path in ("change", "remove"):
        assert inspector.get(f"/models/{alias}/{path}/").status_code == 404
    assert inspector.post(f"/models/{alias}/check/").status_code == 404


def test_the_list_asks_as_many_questions_for_two_models_as_for_twenty(inspector: Client) -> None:
    group = Group.objects.create(name="writers")
    counts = []
    for number in range(20):
        put(f"model-{number}", context_window_source=LimitSource.LITELLM)
        row = LanguageModel.objects.get(alias=f"model-{number}")
        row.grants.create(group=group)
        if number in (1, 19):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                text_of(inspector, "/models/")
            counts.append(len(captured))
    assert counts[0] == counts[1]


TYPED = ENTERED | {"api_key_env": "", "key": "sk-typed-1", "parameters": ""}


def test_a_key_is_stored_sealed_and_reaches_no_page(inspector: Client) -> None:
    page = text_of(inspector, "/models/add/", **TYPED)
    assert "stored, encrypted" in page
    row = LanguageModel.objects.get()
    assert "sk-typed-1" not in row.sealed_key
    assert get_spec("big", user_id=None).api_key == "sk-typed-1"
    assert "sk-typed-1" not in page + text_of(inspector, "/models/big/change/") + repr(find_model_entry("big"))


def test_a_stored_key_stays_until_it_is_replaced_or_removed(inspector: Client) -> None:
    text_of(inspector, "/models/add/", **TYPED)
    text_of(inspector, "/models/big/change/", **TYPED | {"key": "", "litellm_model": "openai/bigger"})
    assert get_spec("big", user_id=None).api_key == "sk-typed-1"
    text_of(inspector, "/models/big/change/", **TYPED | {"key": "sk-typed-2"})
    assert get_spec("big", user_id=None).api_key == "sk-typed-2"
    text_of(inspector, "/models/big/change/", **TYPED | {"key": "", "forget_key": "on"})
    assert get_spec("big", user_id=None).api_key == LanguageModel.objects.get().sealed_key == ""
    text_of(inspector, "/models/big/change/", **TYPED)
    text_of(inspector, "/models/big/change/", **ENTERED)
    assert LanguageModel.objects.get().sealed_key == ""


@pytest.mark.parametrize(
    "moved", [{"api_base": "http://127.0.0.1:10/v1"}, {"litellm_model": "anthropic/big"}, {"api_base": ""}]
)
def test_a_stored_key_goes_nowhere_else(inspector: Client, moved: dict[str, str]) -> None:
    text_of(inspector, "/models/add/", **TYPED)
    page = text_of(inspector, "/models/big/change/", **TYPED | {"key": ""} | moved)
    assert "The stored key was for another provider or address" in page
    LanguageModel.objects.update(**moved)  # whatever else may change the row
    spec = get_spec("big", user_id=None)
    assert (spec.api_key, spec.refusal) == ("", UNREADABLE_KEY)


def test_another_secret_reads_no_stored_key(inspector: Client, settings: Any) -> None:
    text_of(inspector, "/models/add/", **TYPED)
    settings.SECRET_KEY = "another"
    assert get_spec("big", user_id=None).refusal == UNREADABLE_KEY
    assert check_model("big")[0].problem == UNREADABLE_KEY


@pytest.mark.parametrize(
    ("entered", "said"),
    [
        ({"api_key_env": "BIG_KEY"}, "not both"),
        ({"key": "two words"}, "A key can contain only ASCII letters"),
        ({"key": "sk-\u202eevil"}, "A key can contain only ASCII letters"),
        ({"key": "x" * 1_001}, "at most 1000 characters"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(
    inspector: Client, entered: dict[str, str], said: str
) -> None:
    page = text_of(inspector, "/models/add/", **TYPED | entered)
    assert said in page
    assert (TYPED | entered)["key"] not in page
    assert not LanguageModel.objects.exists()


def test_a_command_that_enters_the_model_again_forgets_the_stored_key(inspector: Client) -> None:
    text_of(inspector, "/models/add/", **TYPED)
    put("big")
    assert LanguageModel.objects.get().sealed_key == ""


def test_saving_may_check_at_once(inspector: Client) -> None:
    page = text_of(inspector, "/models/add/", **TYPED | {"check": "1"})
    assert "big gave no answer" in page
    assert "does not answer" in page


def test_what_litellm_knows_is_offered(inspector: Client) -> None:
    page = text_of(inspector, "/models/known/?litellm_model=anthropic/claude-sonnet-4-5")
    assert 'value="anthropic/claude-opus-4-1"' in page
    assert "Known: a window of 200,000 tokens" in page
    assert "$3 in" in page
    for name in ("", "anthropic", "nobody/x", "openai/\0", "x/" * 200):
        page = text_of(inspector, f"/models/known/?{urlencode({'litellm_model': name})}")
        assert "Known:" not in page

"""What goes wrong, as programs and people see it."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client

from mnesis_site.errors import NoOutage
from sessions_app.database import outages
from sessions_app.llm.model_store import create_key


@pytest.fixture
def program(ada: User) -> Client:
    """A client with an API key, which gets a 500 as an answer and not as an exception."""
    key = create_key(owner_id=ada.pk)
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
def visitor(db: None) -> Client:
    return Client(raise_request_exception=False)


def post(program: Client, body: bytes | str) -> Any:
    return program.post("/api/sessions", data=body, content_type="application/json")


def error(response: HttpResponse | Any) -> dict[str, Any]:
    """The error in the one shape that every error has."""
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"code", "message", "details", "request"}
    assert body["error"]["message"]
    found: dict[str, Any] = body["error"]
    return found


def nested(depth: int) -> str:
    return '{"labels": ' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "The body is not JSON: "),
        ('{"title": NaN}', "NaN is not JSON"),
        (b'{"title": "\xff"}', "The body is not UTF-8."),
        (nested(3000), "The body is nested too deeply."),
        ('{"config": {"a": 1e999}}', "a number is too large"),
        ("[]", "it must be an object"),
        ("null", "it must be an object"),
        ('{"title": ' + "1" * 5000 + "}", "The body cannot be read"),
        ('{"title": 5}', "title"),
        ('{"labels": {"a": 1}}', "labels.a"),
        ('{"labels": 7, "config": 8}', "config"),
    ],
)
def test_a_body_that_is_no_request_is_named(program: Client, body: bytes | str, words: str) -> None:
    response = post(program, body)
    assert response.status_code == 422
    found = error(response)
    assert found["code"] == "INVALID_REQUEST"
    assert words in found["message"]


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "\\u202e", "\\ud83d\\ude00"])
@pytest.mark.parametrize("field", ["title", "system_prompt", "model", "agent", "parent_id"])
def test_hostile_text_in_any_field_is_no_server_error(program: Client, field: str, text: str) -> None:
    response = post(program, f'{{"{field}": "a{text}b"}}')
    assert response.status_code < 500
    json.loads(response.content)


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800"])
def test_hostile_text_in_labels_and_config_is_no_server_error(program: Client, text: str) -> None:
    for field in ("labels", "config"):
        for body in (f'{{"{field}": {{"k": "{text}"}}}}', f'{{"{field}": {{"{text}": "v"}}}}'):
            assert post(program, body).status_code < 500


@pytest.mark.parametrize("depth", [500, 900, 990])
def test_deep_json_that_python_can_read_is_no_server_error(program: Client, depth: int) -> None:
    body = '{"config": {"deep": ' + "[" * depth + "]" * depth + "}}"
    assert post(program, body).status_code < 500


@pytest.mark.parametrize(
    "path",
    ["/api/sessions/%00", "/api/sessions/%ff", "/api/sessions/" + "x" * 3000, "/api/sessions/sess_%F0%9F%98%80/turns"],
)
def test_hostile_paths_are_not_found(program: Client, path: str) -> None:
    response = program.get(path)
    assert response.status_code == 404
    assert error(response)["code"] in ("NOT_FOUND", "SESSION_NOT_FOUND")


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=x", "limit=99999999999999999999", "limit=1e3", "label=%00"),
        *("cursor=%00", "cursor=x", "cursor=0001-01-01T00:00:00%2B14:00~x"),
    ],
)
def test_hostile_query_strings_are_invalid_requests(program: Client, query: str) -> None:
    response = program.get(f"/api/sessions?{query}")
    assert response.status_code == 422
    assert error(response)["code"] == "INVALID_REQUEST"


def test_a_body_of_30_megabytes_is_too_large(program: Client) -> None:
    response = post(program, b'{"message": "' + b"x" * 30_000_000 + b'"}')
    assert response.status_code == 413
    assert error(response)["code"] == "REQUEST_TOO_LARGE"


def test_nobody_is_not_signed_in(visitor: Client) -> None:
    response = visitor.get("/api/sessions")
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert error(response)["code"] == "NOT_SIGNED_IN"


@pytest.mark.parametrize("header", ["Bearer mns_x", "Bearer", "Basic YTpi", "Bearer \x00", "Bearer é"])
def test_a_wrong_key_is_not_signed_in(visitor: Client, header: str) -> None:
    response = visitor.get("/api/sessions", headers={"Authorization": header})
    assert response.status_code == 401
    assert error(response)["code"] == "NOT_SIGNED_IN"


def test_a_wrong_key_beside_a_cookie_is_not_signed_in(ada: User, visitor: Client) -> None:
    visitor.force_login(ada)
    assert visitor.get("/api/sessions").status_code == 200
    assert visitor.get("/api/sessions", headers={"Authorization": "Bearer mns_x"}).status_code == 401


def test_a_reading_key_may_not_write(ada: User) -> None:
    reader = Client(headers={"Authorization": f"Bearer {create_key(owner_id=ada.pk, scope='read')}"})
    assert reader.get("/api/sessions").status_code == 200
    response = post(reader, "{}")
    assert response.status_code == 403
    assert error(response)["code"] == "PERMISSION_DENIED"


def test_a_cookie_without_its_csrf_token_may_not_write(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    response = post(browser, "{}")
    assert response.status_code == 403
    assert error(response)["code"] == "PERMISSION_DENIED"


def test_an_unknown_api_path_is_json(program: Client) -> None:
    response = program.get("/api/nothing/here")
    assert response.status_code == 404
    assert error(response)["code"] == "NOT_FOUND"


def test_a_method_that_is_not_there_says_which_are(program: Client) -> None:
    response = program.put("/api/sessions")
    assert response.status_code == 405
    assert set(response.headers["Allow"].split(", ")) == {"GET", "POST"}
    assert error(response)["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_address_that_an_api_does_not_have_is_refused_in_its_shape(program: Client, method: str) -> None:
    openai = program.generic(method, "/v1/responses/one/nothing")
    assert (openai.status_code, openai.json()["error"]["type"]) == (404, "invalid_request_error")
    anthropic = program.generic(method, "/v1/messages/batches").json()
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "not_found_error")
    wrong = program.generic("PATCH", "/v1/chat/completions")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")


def test_a_foreign_host_is_refused_in_both_manners(visitor: Client) -> None:
    assert error(visitor.get("/api/sessions", headers={"Host": "evil.example"}))["code"] == "INVALID_REQUEST"
    page = visitor.get("/sign-in/", headers={"Host": "evil.example"})
    assert page.status_code == 400
    assert b"The request is not valid" in page.content


def test_an_unknown_page_is_a_page(visitor: Client) -> None:
    response = visitor.get("/nothing/here")
    assert response.status_code == 404
    assert b"Page not found" in response.content


def test_a_form_without_its_csrf_token_is_a_page(db: None) -> None:
    response = Client(enforce_csrf_checks=True).post("/sign-in/", {"username": "a", "password": "b"})
    assert response.status_code == 403
    assert b"This form has expired" in response.content


def test_somebody_elses_session_page_is_a_404_page(ada: User) -> None:
    reader = Client()
    reader.force_login(ada)
    response = reader.get("/sessions/sess_nobody/")
    assert response.status_code == 404
    assert b"SESSION_NOT_FOUND" in response.content
    assert b"Page not found" in response.content


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/docs", "/api/openapi.json"])
def test_the_api_describes_itself_to_those_who_are_signed_in(ada: User, path: str) -> None:
    reader = Client()
    assert (reader.get(path).status_code, reader.get(path).json()["error"]["code"]) == (401, "NOT_SIGNED_IN")
    assert reader.get(path, headers={"Authorization": "Bearer mns_x"}).status_code == 401
    at_a_browser = reader.get(path, headers={"Accept": "text/html,*/*"})
    assert (at_a_browser.status_code, at_a_browser.headers["Location"]) == (302, f"/sign-in/?next={path}")
    program = Client(headers={"Authorization": f"Bearer {create_key(owner_id=ada.pk, scope='read')}"})
    assert program.get(path).status_code == 200
    reader.force_login(ada)
    assert reader.get(path).status_code == 200
    assert reader.get("/api/openapi.json").json()["paths"]["/api/sessions"]


@pytest.mark.parametrize(
    ("path", "values", "words"),
    [
        ("sessions_app/accountlimit", {"limits": "[" * 3_000}, "nested too deeply"),
        ("auth/group", {"name": "x", "permissions": "9" * 30}, "too large"),
    ],
)
def test_hostile_values_in_a_form_of_the_administration_are_no_server_error(
    path: str, values: dict[str, str], words: str, visitor: Client
) -> None:
    visitor.force_login(User.objects.create_superuser("root"))
    answered = visitor.post(f"/admin/{path}/add/", values)
    # PostgreSQL takes the number, and the form says that there is no such permission.
    assert answered.status_code == 422 or b"not one of the available choices" in answered.content
    assert answered.status_code == 200 or words in answered.content.decode()


def fail(*_: Any) -> None:
    """What a database that is away raises for any statement."""
    raise OperationalError("the server closed the connection")


def test_a_database_that_is_away_is_503_in_both_manners_and_once_in_the_log(
    ada: User, program: Client, visitor: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "_logged_at", {})
    visitor.force_login(ada)
    with connection.execute_wrapper(fail):
        answers = [
            program.get("/api/sessions"),
            program.get("/v1/models"),
            visitor.get("/"),
            visitor.get("/admin/"),
        ] * 2
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["Retry-After"] for answer in answers} == {"2"}
    assert all(b"DATABASE_UNAVAILABLE" in answer.content for answer in answers)
    assert error(answers[0])["code"] == "DATABASE_UNAVAILABLE"
    assert not [record for record in caplog.records if record.exc_info and NoOutage().filter(record)]
    said = [record.name for record in caplog.records if NoOutage().filter(record)]
    assert len(said) == len(set(said))


def test_no_room_on_the_disk_is_507(program: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OperationalError("database or disk is full") from OSError(errno.ENOSPC, "no space")

    with connection.execute_wrapper(full):
        answer = program.get("/api/sessions")
    assert (answer.status_code, error(answer)["code"]) == (507, "STORAGE_FULL")
    assert answer.headers["Retry-After"] == "30"

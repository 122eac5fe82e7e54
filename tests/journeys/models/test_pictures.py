"""Pictures over every endpoint to a model's server: sent with OpenAI's package, kept as files, shown, and rebuilt."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from PIL import Image

from tests.journeys.conftest import Caller
from tests.support.material.drawings import bomb, data_url, drawing, image_part, moving, sent_pictures, turned
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.servers.picture_server import PDF, PICTURE, PictureServer

SESSION = "X-Mnesis-Session"
ASK: Any = {"type": "text", "text": "What is on this?"}


@pytest.fixture(scope="module", autouse=True)
def models(caller: Caller, openai_server: OpenAIServer) -> None:
    """A model that takes pictures, and one that does not."""
    for alias, takes in (("seeing", "yes"), ("blind", "no")):
        options = ["--litellm", "openai/ok", "--api-base", openai_server.base_url, "--api-key-env", "LOOPBACK_KEY"]
        made = caller.site.manage("model", "add", "--alias", alias, *options, "--context", "16000", "--pictures", takes)
        assert made.returncode == 0, made.stderr


@pytest.fixture
def client(caller: Caller) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{caller.site.url}/v1", api_key=caller.key, max_retries=0) as client:
        yield client


def ask(client: OpenAI, *parts: Any, model: str = "seeing", session: str = "new") -> str:
    """One question; returns its session."""
    messages: Any = [{"role": "user", "content": [*parts]}]
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=messages, extra_headers={SESSION: session}
    )
    assert raw.parse().choices[0].message.content
    return raw.headers[SESSION]


def refused(client: OpenAI, *parts: Any) -> Any:
    with pytest.raises((openai.UnprocessableEntityError, openai.PermissionDeniedError)) as problem:
        ask(client, *parts)
    return problem.value


def newest_call(caller: Caller, session: str) -> dict[str, Any]:
    calls: dict[str, Any] = caller.call("GET", f"/api/sessions/{session}/calls")
    found: dict[str, Any] = calls["items"][-1]
    return found


def test_a_picture_is_shown_to_a_model_that_takes_them(caller: Caller, client: OpenAI, openai_server: OpenAIServer):
    picture = drawing(40, 30)
    session = ask(client, ASK, image_part(picture))
    body = openai_server.requests[-1].body
    assert sent_pictures(body) == [picture]
    told = body["messages"][-1]["content"][0]["text"]
    assert told.startswith("What is on this?\n[FILE: picture-")
    assert "40 x 30 pixels" in told
    [file] = caller.call("GET", f"/api/files?session_id={session}")["items"]
    assert (file["file_type"], file["size"]) == ("image", len(picture))

    call = newest_call(caller, session)
    payload = caller.call("GET", f"/api/calls/{call['id']}/payload")
    assert payload["digest_matches"]
    assert sent_pictures(payload["payload"]) == [picture]

    ask(client, {"type": "text", "text": "And now?"}, session=session)
    assert sent_pictures(openai_server.requests[-1].body) == [picture]


def test_a_model_that_takes_none_is_told_in_words(caller: Caller, client: OpenAI, openai_server: OpenAIServer):
    session = ask(client, ASK, image_part(drawing(40, 30)), model="blind")
    body = openai_server.requests[-1].body
    assert sent_pictures(body) == []
    assert "40 x 30 pixels" in body["messages"][-1]["content"]
    assert len(caller.call("GET", f"/api/files?session_id={session}")["items"]) == 1


def test_a_large_picture_is_scaled_once_and_rebuilt(caller: Caller, client: OpenAI, openai_server: OpenAIServer):
    session = ask(client, ASK, image_part(drawing(3000, 2000, kind="JPEG"), "image/jpeg"))
    [sent] = sent_pictures(openai_server.requests[-1].body)
    with Image.open(io.BytesIO(sent)) as picture:
        assert picture.size == (1152, 768)
    payload = caller.call("GET", f"/api/calls/{newest_call(caller, session)['id']}/payload")
    assert payload["digest_matches"]
    # The rendition is kept, but it is no file that a person gave.
    assert len(caller.call("GET", f"/api/files?session_id={session}")["items"]) == 1
    ask(client, {"type": "text", "text": "Look again"}, session=session)
    assert sent_pictures(openai_server.requests[-1].body) == [sent]


def test_pictures_are_upright_and_still(client: OpenAI, openai_server: OpenAIServer):
    cmyk = drawing(30, 20, kind="JPEG", mode="CMYK")
    ask(client, ASK, image_part(turned(300, 200)), image_part(moving()), image_part(cmyk), image_part(drawing(1, 1)))
    found = []
    for sent in sent_pictures(openai_server.requests[-1].body):
        with Image.open(io.BytesIO(sent)) as picture:
            found.append((picture.size, picture.mode, getattr(picture, "n_frames", 1), picture.getexif().get(0x0112)))
    assert found == [
        ((200, 300), "RGB", 1, None),
        ((40, 30), "RGB", 1, None),
        ((30, 20), "RGB", 1, None),
        ((1, 1), "RGB", 1, None),
    ]


def test_a_picture_without_a_word_is_a_question(client: OpenAI, openai_server: OpenAIServer):
    ask(client, image_part(drawing(41, 30)))
    assert len(sent_pictures(openai_server.requests[-1].body)) == 1


def test_a_picture_and_a_pdf_at_addresses_are_fetched(caller: Caller, client: OpenAI, openai_server: OpenAIServer):
    with PictureServer() as server:
        picture: Any = {"type": "image_url", "image_url": {"url": f"{server.url}/quay.png"}}
        session = ask(client, ASK, picture)
        assert sent_pictures(openai_server.requests[-1].body) == [PICTURE]
        ask(client, {"type": "text", "text": "And now?"}, session=session)
        assert sent_pictures(openai_server.requests[-1].body) == [PICTURE]
        content: Any = [
            {"type": "input_image", "image_url": f"{server.url}/quay.png", "detail": "auto"},
            {"type": "input_file", "file_url": f"{server.url}/tides.pdf"},
        ]
        client.responses.create(
            model="seeing", input=[{"role": "user", "content": content}], extra_headers={SESSION: session}
        )
        assert server.paths == ["/quay.png", "/quay.png", "/tides.pdf"]
    payload = caller.call("GET", f"/api/calls/{newest_call(caller, session)['id']}/payload")
    assert payload["digest_matches"]
    files = caller.call("GET", f"/api/files?session_id={session}")["items"]
    assert sorted(file["size"] for file in files) == sorted([len(PICTURE), len(PDF)])


def test_rest_takes_the_same_parts(caller: Caller, openai_server: OpenAIServer):
    session = caller.new_session(model="seeing")
    picture = drawing(42, 30)
    body = {"parts": [ASK, image_part(picture)], "idempotency_key": "once"}
    started = [caller.call("POST", f"/api/sessions/{session}/turns", body) for _ in range(2)]
    assert started[0]["id"] == started[1]["id"]
    assert len(caller.call("GET", f"/api/files?session_id={session}")["items"]) == 1


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("HTTP://127.0.0.1:1/cat.png", "PICTURE_NOT_FETCHED"),
        ("http://169.254.169.254/cat.png", "NOT_LISTED"),
        ("file:///etc/passwd", "INVALID_PICTURE"),
        ("data:image/png;base64,not base64!", "INVALID_PICTURE"),
        ("data:image/png,plain", "INVALID_PICTURE"),
        ("", "INVALID_PICTURE"),
        (data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "INVALID_PICTURE"),
        (data_url(b"<html><script>alert(1)</script></html>"), "INVALID_PICTURE"),
        (data_url(drawing(400, 300)[:300]), "INVALID_PICTURE"),
        (data_url(bomb()), "INVALID_PICTURE"),
    ],
)
def test_what_is_no_picture_is_refused(caller: Caller, client: OpenAI, url: str, code: str):
    before = len(caller.call("GET", "/api/files")["items"])
    problem = refused(client, ASK, {"type": "image_url", "image_url": {"url": url}})
    assert problem.code == code
    assert len(caller.call("GET", "/api/files")["items"]) == before


def test_only_users_show_pictures(client: OpenAI):
    messages: Any = [{"role": "system", "content": [image_part(drawing())]}, {"role": "user", "content": "Hi"}]
    with pytest.raises(openai.UnprocessableEntityError) as problem:
        client.chat.completions.create(model="seeing", messages=messages)
    assert problem.value.param == "messages.0.content.0.type"


def test_pictures_of_a_history_are_kept(caller: Caller, client: OpenAI, openai_server: OpenAIServer):
    first, second = drawing(43, 30), drawing(44, 30)
    messages: Any = [
        {"role": "user", "content": [ASK, image_part(first)]},
        {"role": "assistant", "content": "A gradient."},
        {"role": "user", "content": [ASK, image_part(second)]},
    ]
    client.chat.completions.create(model="seeing", messages=messages)
    assert sent_pictures(openai_server.requests[-1].body) == [first, second]

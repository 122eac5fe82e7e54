"""OpenAI's own package and its Responses API with models of another server: pictures, and every way a model fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.journeys.conftest import Caller
from tests.journeys.models.test_models_that_fail import ADD_ALL, FAILURES, options_of
from tests.support.material.drawings import bomb, data_url, drawing, sent_pictures
from tests.support.providers.openai.openai_server import TEXT, OpenAIServer

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ASK: Any = {"type": "input_text", "text": "What is on this?"}
# What fails before the first word, with what the package makes of its status.
AT_ONCE = {
    "unauthorized": openai.InternalServerError,
    "rate_limited_for_long": openai.RateLimitError,
    "server_error": openai.InternalServerError,
    "html": openai.InternalServerError,
    "empty": openai.InternalServerError,
}


@pytest.fixture(scope="module", autouse=True)
def models(caller: Caller, openai_server: OpenAIServer) -> None:
    """A model that takes pictures, one that does not, and one for each failure, by its name."""
    seeing = [*options_of(openai_server, "ok"), "--pictures", "yes"]
    blind = [*options_of(openai_server, "ok"), "--pictures", "no"]
    failing = {name: options_of(openai_server, name) for name in FAILURES}
    added = caller.site.manage(
        "shell", "-v0", "-c", ADD_ALL.format(models=failing | {"seeing": seeing, "blind": blind})
    )
    assert added.returncode == 0, added.stderr


@pytest.fixture
def client(caller: Caller) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{caller.site.url}/v1", api_key=caller.key, max_retries=0) as client:
        yield client


def picture_part(data: bytes) -> Any:
    return {"type": "input_image", "image_url": data_url(data), "detail": "auto"}


def look(client: OpenAI, data: bytes, *, stream: bool, model: str = "seeing", **options: Any) -> Response:
    asked: Any = [{"role": "user", "content": [ASK, picture_part(data)]}]
    if not stream:
        return client.responses.create(model=model, input=asked, **options)
    with client.responses.stream(model=model, input=asked, **options) as events:
        return events.get_final_response()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_picture_reaches_the_model_and_stays_in_the_session(
    client: OpenAI, openai_server: OpenAIServer, stream: bool
) -> None:
    picture = drawing(41 + stream, 30)
    answered = look(client, picture, stream=stream)
    assert (answered.status, answered.output_text) == ("completed", TEXT)
    assert sent_pictures(openai_server.requests[-1].body) == [picture]
    client.responses.create(model="seeing", input="And now?", previous_response_id=answered.id)
    assert sent_pictures(openai_server.requests[-1].body) == [picture]
    [item] = client.responses.input_items.list(answered.id).data
    assert item.type == "message"


def test_a_model_that_takes_no_pictures_is_told_in_words(client: OpenAI, openai_server: OpenAIServer) -> None:
    assert look(client, drawing(43, 30), stream=False, model="blind").status == "completed"
    assert "43 x 30 pixels" in str(openai_server.requests[-1].body["messages"][-1]["content"])
    assert sent_pictures(openai_server.requests[-1].body) == []


@pytest.mark.parametrize("data", [bomb(), b"no picture", drawing()[:-30]], ids=["bomb", "no picture", "broken"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_is_no_picture_is_refused(client: OpenAI, data: bytes, stream: bool) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        look(client, data, stream=stream)
    assert refused.value.code == "INVALID_PICTURE"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", AT_ONCE)
def test_a_model_that_fails_at_once_fails_with_a_status(client: OpenAI, name: str, stream: bool) -> None:
    with pytest.raises(AT_ONCE[name]) as failed:
        client.responses.create(model=name, input="Go", stream=stream)
    assert failed.value.code == FAILURES[name][1]
    assert failed.value.message


@pytest.mark.parametrize("name", ["reset", "malformed"])
def test_a_model_that_breaks_off_fails_the_response(client: OpenAI, name: str) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        client.responses.create(model=name, input="Go")
    assert failed.value.code == "MODEL_STREAM_BROKEN"
    events = events_of(client, name)
    assert events[-1]["type"] == "response.failed"
    last = events[-1]["response"]
    assert (last["status"], last["error"]["code"]) == ("failed", "server_error")
    assert last["error"]["message"].startswith("The answer broke off in the middle.")
    assert last["mnesis"]["code"] == "MODEL_STREAM_BROKEN"
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert said
    assert TEXT.startswith(said)
    assert client.responses.retrieve(last["id"]).output_text == said


def test_an_answer_without_an_end_is_incomplete(client: OpenAI) -> None:
    whole = client.responses.create(model="no_finish", input="Go")
    last = events_of(client, "no_finish")[-1]
    assert last["type"] == "response.incomplete"
    assert whole.status == last["response"]["status"] == "incomplete"
    assert whole.output_text == last["response"]["output"][0]["content"][0]["text"] == TEXT


def events_of(client: OpenAI, model: str) -> list[dict[str, Any]]:
    """What a stream brings, each as the package's own types say."""
    events = [event.model_dump() for event in client.responses.create(model=model, input="Go", stream=True)]
    for event in events:
        EVENTS.validate_python(event)
    return events

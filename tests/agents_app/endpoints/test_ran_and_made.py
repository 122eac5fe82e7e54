"""What a provider ran and the pictures that a model made, in the answers of the endpoints that agents speak."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import Message
from django.contrib.auth.models import User
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import ProviderToolPart
from mnesis_core.records import UsageRecord
from mnesis_core.turns.anthropic import read_answer
from mnesis_core.turns.requests import Answered, Head
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key, put_model
from tests.support.material.drawings import drawing
from tests.support.people.programs import Program
from tests.support.providers.event_provider import EventProvider, claude, responses, said

pytestmark = pytest.mark.usefixtures("no_connection_left")

PNG = base64.b64encode(drawing()).decode()
SAID = {"type": "output_text", "text": "It is 14 m.", "annotations": []}
ITEMS = (
    {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "tide"}},
    {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [SAID]},
    {
        **{"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "container_id": "c"},
        **{"code": "7 * 2", "outputs": [{"type": "logs", "logs": "14"}]},
    },
    {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": PNG},
)
DELTA = {"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": SAID["text"]}
RAN_CODE = "code_execution_tool_result"
KINDS = ["message", "web_search_call", "code_interpreter_call", "image_generation_call"]


@pytest.fixture
def key(alice: User, monkeypatch: Any) -> Iterator[str]:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with EventProvider(lambda _: responses(*ITEMS, between={1: [DELTA]})) as provider:
        put_model(
            ModelSpec(
                alias="maker",
                litellm_model="openai/responses/gpt-5",
                api_base=provider.url,
                context_window=50_000,
                max_output_tokens=900,
                entered_on_host=True,
            )
        )
        yield str(create_key(owner_id=alice.pk))


async def streamed(response: Any) -> list[dict[str, Any]]:
    text = "".join([piece.decode() async for piece in response.streaming_content])
    frames = [frame.partition("data: ")[2] for frame in text.strip().split("\n\n")]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


def check(response: dict[str, Any]) -> None:
    read = Response.model_validate(response)
    spoken, search, code, picture = read.output
    assert [item.type for item in read.output] == KINDS
    assert search.action.query == "tide"  # type: ignore[union-attr]
    assert (code.code, code.outputs[0].logs) == ("7 * 2", "14")  # type: ignore[union-attr, index]
    assert base64.b64decode(picture.result) == drawing()  # type: ignore[union-attr, arg-type]
    assert spoken.content[0].text == SAID["text"]  # type: ignore[union-attr, index]


async def test_a_client_of_responses_gets_items_of_them(key: str) -> None:
    program = Program(key, "/v1/responses")
    whole = (await program.post(model="maker", input="How high?")).json()
    check(whole)
    check((await program.get(f"/v1/responses/{whole['id']}")).json())
    events = await streamed(await program.post(model="maker", input="How high?", stream=True))
    check(events[-1]["response"])
    done = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
    assert done == KINDS
    history = [{"role": "user", "content": "How high?"}, *whole["output"], {"role": "user", "content": "And now?"}]
    assert (await program.post(model="maker", input=history, store=False)).status_code == 200


async def test_a_client_of_chat_completions_gets_the_pictures(key: str) -> None:
    program = Program(key, "/v1/chat/completions")
    asked: Any = {"model": "maker", "messages": [{"role": "user", "content": "How high?"}]}
    whole = (await program.post(**asked)).json()
    ChatCompletion.model_validate(whole)
    [image] = whole["choices"][0]["message"]["images"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    chunks = await streamed(await program.post(**asked, stream=True))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert [delta["images"] for delta in deltas if "images" in delta] == [[image]]


async def test_a_client_of_messages_gets_searches_and_code_and_may_send_them_back(key: str) -> None:
    program = Program(key, "/v1/messages")
    asked: Any = {"model": "maker", "max_tokens": 500, "messages": [{"role": "user", "content": "How high?"}]}
    whole = (await program.post(**asked)).json()
    read = Message.model_validate(whole).content
    kinds = [block.type for block in read]
    assert kinds == ["text", *("server_tool_use", "web_search_tool_result"), *("server_tool_use", RAN_CODE)]
    assert (read[3].name, read[3].input, read[4].tool_use_id) == ("code_execution", {"code": "7 * 2"}, read[3].id)  # type: ignore[union-attr]
    assert (read[4].content.stdout, read[4].content.return_code) == ("14", 0)  # type: ignore[union-attr]
    events = await streamed(await program.post(**asked, stream=True))
    assert [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"] == kinds
    pieces = [event["delta"].get("partial_json") for event in events if event["type"] == "content_block_delta"]
    assert [json.loads(piece) for piece in pieces if piece] == [{"query": "tide"}, {"code": "7 * 2"}]
    asked["messages"] += [{"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "And now?"}]
    again = await program.post(**asked)
    assert (again.status_code, [block["type"] for block in again.json()["content"]]) == (200, kinds)


def ran(name: str, given: dict[str, Any], content: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    id = f"srvtoolu_{name}"
    result = {"type": f"{name}_tool_result", "tool_use_id": id, "content": content}
    return [({"type": "server_tool_use", "id": id, "name": name, "input": given}, []), (result, [])]


BASH, EDITOR = "bash_code_execution", "text_editor_code_execution"
FILE = {"type": f"{BASH}_output", "file_id": "file_1"}
LISTED = {"type": f"{BASH}_result", "stdout": "a.txt", "stderr": "!", "return_code": 2, "content": [FILE]}
CREATED = {"type": f"{EDITOR}_create_result", "is_file_update": False}
LATE = {"type": "code_execution_tool_result_error", "error_code": "execution_time_exceeded"}


async def test_code_that_claude_ran_comes_as_it_says_it(key: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    blocks = [
        said("Done."),
        *ran(BASH, {"command": "ls"}, LISTED),
        *ran(EDITOR, {"command": "create", "path": "a.txt"}, CREATED),
        *ran("code_execution", {"code": "1"}, LATE),
    ]
    with EventProvider(lambda _: claude(*blocks)) as provider:
        await db(
            put_model,
            ModelSpec(
                alias="claude",
                litellm_model="anthropic/claude-sonnet-4-5",
                api_base=provider.url,
                context_window=50_000,
                max_output_tokens=900,
                entered_on_host=True,
            ),
        )
        program = Program(key, "/v1/messages")
        asked: Any = {"model": "claude", "max_tokens": 500, "messages": [{"role": "user", "content": "Run"}]}
        whole = (await program.post(**asked)).json()
        asked["messages"] += [{"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "Again"}]
        assert (await program.post(**asked)).status_code == 200
    found = Message.model_validate(whole).content[1:]
    assert [(block.name, block.input) for block in found[::2]] == [  # type: ignore[union-attr]
        (BASH, {"command": "ls"}),
        (EDITOR, {"command": "create", "path": "a.txt"}),
        ("code_execution", {"code": "1"}),
    ]
    assert [block["content"] for block in whole["content"][2::2]] == [LISTED | {"content": []}, CREATED, LATE]
    assert [block.tool_use_id for block in found[1::2]] == [block.id for block in found[::2]]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("output", "error", "content"),
    [
        ('{"stdout": ["x"], "stderr": 1, "return_code": "0"}', None, {"stdout": "", "stderr": "", "return_code": 0}),
        ("[" * 5_000, None, {"stdout": "", "stderr": "", "return_code": 0}),
        (None, "anything", {"error_code": "unavailable"}),
    ],
)
def test_hostile_results_of_code_break_nothing(output: str | None, error: str | None, content: dict[str, Any]) -> None:
    part = ProviderToolPart(
        provider="anthropic", tool_name=BASH, tool_call_id="1", input="[" * 5_000, output=output, error=error, data=""
    )
    head = Head(turn_id="turn_1", session_id="sess_1", model="m", created=1)
    answered = Answered(head=head, text="", ran=(part,), finish_reason="stop", state="completed", usage=UsageRecord())
    call, result = read_answer(answered, thinks=False)["content"]
    assert set(call["input"]) == {"arguments"}
    assert content.items() <= result["content"].items()


async def test_pictures_that_take_too_much_room_stay_files_of_the_session(key: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("agents_app.endpoints.answers.MOST_PICTURE_BYTES", len(drawing()) - 1)
    whole = (await Program(key, "/v1/responses").post(model="maker", input="How high?")).json()
    assert [item["type"] for item in whole["output"]] == KINDS[:3]

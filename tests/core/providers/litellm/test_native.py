"""What litellm does not hand on of a provider's events is read from them: why an answer ended, what was refused, what the
provider ran, and the sources of what was said."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest

from mnesis_core.llm.interface import (
    LimitSource,
    MadePicture,
    ModelSpec,
    Outcome,
    RefusalDelta,
    Reply,
    Request,
    TextDelta,
    cost_micros,
)
from mnesis_core.messages import CitationPart, ProviderToolPart
from mnesis_core.providers.litellm_ import LiteLLMModel
from tests.support.material.drawings import drawing
from tests.support.providers.event_provider import EventProvider, chat, claude, gemini, responses, said

ASKED = Request(payload={"messages": [{"role": "user", "content": "How?"}]}, max_output_tokens=500)
CLAUDE, GPT, RESPONSES = "anthropic/claude-sonnet-4-5", "openai/gpt-4o", "openai/responses/gpt-5"
GEMINI, ROUTED = "gemini/gemini-2.5-flash", "openrouter/some/model"
NO = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
NO |= {"content": [{"type": "refusal", "refusal": "I will not."}]}
PLACE = {"item_id": "msg_1", "content_index": 0}
SAYS_NO = {
    0: [
        {"type": "response.refusal.delta", **PLACE, "delta": "I will "},
        {"type": "response.refusal.delta", **PLACE, "delta": "not."},
        {"type": "response.refusal.done", **PLACE, "refusal": "I will not."},
    ]
}
REFUSAL = [{"role": "assistant", "content": None, "refusal": ""}, {"refusal": "I will "}, {"refusal": "not."}]


async def answer(name: str, events: Iterable[tuple[str, dict[str, Any]]], **about: Any) -> list[Any]:
    with EventProvider(lambda _: events) as provider:
        spec = ModelSpec(
            alias="a",
            litellm_model=name,
            api_base=provider.url,
            api_key="key",
            context_window=9_000,
            max_output_tokens=500,
            listed_addresses=None,
            **about,
        )
        return [item async for item in LiteLLMModel(spec).stream(ASKED)]


@pytest.mark.parametrize(
    ("name", "events", "text", "finish"),
    [
        pytest.param(GPT, chat(*REFUSAL), "I will not.", "stop", id="chat"),
        pytest.param(ROUTED, chat(*REFUSAL), "I will not.", "stop", id="a chat whose events litellm reads"),
        pytest.param(RESPONSES, responses(NO, between=SAYS_NO), "I will not.", "stop", id="responses"),
        pytest.param(RESPONSES, responses(cut="content_filter"), "", "content_filter", id="a filter of responses"),
        pytest.param(CLAUDE, claude(said("Half"), stop="refusal"), "", "refusal", id="claude"),
        pytest.param(GEMINI, gemini({"text": "Half"}, finish="SAFETY"), "", "content_filter", id="gemini"),
        pytest.param(
            GEMINI, [("", {"promptFeedback": {"blockReason": "SAFETY"}})], "", "content_filter", id="a prompt of gemini"
        ),
    ],
)
async def test_a_refusal_is_an_end_of_its_own(name: str, events: Any, text: str, finish: str) -> None:
    *deltas, reply = await answer(name, events)
    assert isinstance(reply, Reply)
    assert (reply.refusal, reply.finish_reason) == (text, finish)
    assert "".join(delta.text for delta in deltas if isinstance(delta, RefusalDelta)) == text
    assert (reply.outcome, reply.error and reply.error.code) == (Outcome.INCOMPLETE, "ANSWER_REFUSED")


async def test_an_answer_that_filled_the_window_says_so() -> None:
    *_, reply = await answer(CLAUDE, claude(said("Half"), stop="model_context_window_exceeded"))
    assert (reply.text, reply.outcome) == ("Half", Outcome.INCOMPLETE)
    assert reply.error.code == "CONTEXT_WINDOW_EXCEEDED"
    assert "Compact the session" in reply.error.message


@pytest.mark.parametrize(
    ("stop", "at", "kept"),
    [("stop_sequence", "END", "END"), ("end_turn", None, None), ("stop_sequence", ["END"], None)],
)
async def test_the_text_at_which_an_answer_stopped_is_said(stop: str, at: Any, kept: str | None) -> None:
    *_, reply = await answer(CLAUDE, claude(said("Half"), stop=stop, at=at))
    assert (reply.text, reply.outcome, reply.stop_sequence) == ("Half", Outcome.COMPLETE, kept)
    assert reply.finish_reason == ("stop_sequence" if stop == "stop_sequence" else "stop")


OPENED = {"id": "ws_2", "type": "web_search_call", "status": "completed", "action": {"type": "open_page", "url": "u"}}
LOOKED = OPENED | {"id": "ws_1", "action": {"type": "search", "query": "tide"}}
GROUNDED = {"groundingMetadata": {"webSearchQueries": ["tide", "quay"]}}


@pytest.mark.parametrize(
    ("name", "events", "dollars"),
    [
        pytest.param(CLAUDE, claude(said("14"), searches=3), 0.03, id="claude"),
        pytest.param(CLAUDE, claude(said("14"), searches=-3), 0, id="no count"),
        pytest.param(CLAUDE, claude(said("14"), searches=10**9), 0, id="a count that cannot be true"),
        pytest.param(RESPONSES, responses(LOOKED, OPENED, LOOKED), 0.02, id="responses"),
        pytest.param(GEMINI, gemini({"text": "14"}, **GROUNDED), 0.035, id="a gemini that bills the answer"),
        pytest.param(
            "gemini/gemini-3-pro-preview", gemini({"text": "14"}, **GROUNDED), 0.028, id="one that bills each"
        ),
    ],
)
async def test_searches_cost_what_the_table_says(name: str, events: Any, dollars: float) -> None:
    *_, reply = await answer(name, events, prices_source=LimitSource.LITELLM)
    assert reply.usage.searches_micros == round(dollars * 1_000_000)
    spec = ModelSpec(alias="a", litellm_model=name, context_window=9_000, max_output_tokens=500)
    assert cost_micros(spec, reply.usage) == reply.usage.searches_micros  # whose tokens are free


async def test_searches_of_a_model_with_prices_of_its_own_cost_nothing_that_is_known() -> None:
    *_, reply = await answer(CLAUDE, claude(said("14"), searches=3))
    assert reply.usage.searches_micros == 0


async def test_a_refused_answer_calls_no_tools() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "shelf", "input": {}}
    *_, reply = await answer(CLAUDE, claude((call, []), stop="refusal"))
    assert reply.tool_calls == ()


ADDRESS = "https://a.example/"
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
PIECES = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"query": ', '"tide"}')]
HIT = {"type": "web_search_result", "url": ADDRESS, "title": "Tides", "encrypted_content": "b64", "page_age": None}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [HIT]}
FAILED = FOUND | {"content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}
SAYS = {
    "type": "web_search_result_location",
    "url": ADDRESS,
    "title": "Tides",
    "cited_text": "14",
    "encrypted_index": "x",
}
CITED = ({"type": "text", "text": ""}, [*said("14 m")[1], {"type": "citations_delta", "citation": SAYS}])
OWN = ({"type": "tool_use", "id": "toolu_1", "name": "shelf", "input": {}}, [])


async def test_what_claude_s_provider_ran_is_no_call_of_ours() -> None:
    blocks = [said("I look."), (SEARCH, PIECES), (FOUND, []), said("It is "), CITED, said(" high."), OWN]
    first, ran, *texts, cited, reply = await answer(CLAUDE, claude(*blocks, stop="tool_use"))
    assert first == TextDelta(text="I look.")
    assert "".join(delta.text for delta in texts) == "It is 14 m high."
    assert isinstance(ran, ProviderToolPart)
    assert (ran.provider, ran.tool_name, ran.tool_call_id) == ("anthropic", "web_search", "srvtoolu_1")
    assert (json.loads(ran.input), ran.error) == ({"query": "tide"}, None)
    assert "Tides" in str(ran.output)
    assert "b64" not in str(ran.output)
    assert json.loads(ran.data) == {"blocks": [SEARCH | {"input": {"query": "tide"}}, FOUND]}
    assert (cited.title, cited.url, cited.text, cited.start, cited.end) == ("Tides", ADDRESS, "14", 6, 10)
    assert [call.name for call in reply.tool_calls] == ["shelf"]


@pytest.mark.slow
async def test_a_search_that_failed_or_has_no_result_yet_says_so() -> None:
    failed, reply = await answer(CLAUDE, claude((SEARCH, PIECES), (FAILED, [])))
    assert (failed.output, failed.error) == (None, "max_uses_exceeded")
    assert reply.outcome is Outcome.COMPLETE
    paused, reply = await answer(CLAUDE, claude((SEARCH, PIECES), stop="pause_turn"))
    assert (paused.output, paused.error, reply.finish_reason) == (None, None, "pause_turn")
    assert reply.tool_calls == ()


async def test_what_openai_ran_and_cited() -> None:
    cited = {"type": "url_citation", "url": ADDRESS, "title": "Tides", "start_index": 6, "end_index": 10}
    text = {"type": "output_text", "text": "It is 14 m.", "annotations": [cited]}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    search |= {"action": {"type": "search", "query": "tide"}}
    code = {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1+1", "container_id": "c"}
    code |= {"outputs": [{"type": "logs", "logs": "2"}]}
    delta = {1: [{"type": "response.output_text.delta", **PLACE, "delta": "It is 14 m."}]}
    ran, text_delta, source, counted, reply = await answer(RESPONSES, responses(search, message, code, between=delta))
    assert (ran.tool_name, json.loads(ran.input)["query"], ran.output) == ("web_search", "tide", None)
    assert text_delta == TextDelta(text="It is 14 m.")
    assert (source.url, source.start, source.end) == (ADDRESS, 6, 10)
    assert (counted.tool_name, counted.output) == ("code_interpreter", "2")
    assert reply.outcome is Outcome.COMPLETE


async def test_reasoning_that_led_to_a_search_is_not_sent_back_without_it() -> None:
    thoughts = [
        {"id": f"rs_{n}", "type": "reasoning", "summary": [], "encrypted_content": f"b64{n}", "status": "completed"}
        for n in range(2)
    ]
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "shelf", "arguments": "{}"}
    call |= {"status": "completed"}
    pieces = {3: [{"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"}]}
    *_, reply = await answer(RESPONSES, responses(thoughts[0], search, thoughts[1], call, between=pieces))
    [called] = reply.tool_calls
    assert [json.loads(block.data)["id"] for block in called.opaque] == ["rs_1"]


@pytest.mark.slow
async def test_sources_of_chats_and_of_gemini_stand_behind_the_text() -> None:
    about = {"url": ADDRESS, "title": "Tides", "start_index": 0, "end_index": 5}
    sources = [
        {"role": "assistant", "content": "It is"},
        {"annotations": [{"type": "url_citation", "url_citation": about}]},
    ]
    *_, cited, _ = await answer(GPT, chat(*sources, {"content": " 14."}))
    assert (cited.url, cited.start, cited.end) == (ADDRESS, 0, 5)
    # Gemini counts bytes.
    support = {"segment": {"startIndex": 3, "endIndex": 6, "text": "ö"}, "groundingChunkIndices": [0]}
    grounded = {"groundingChunks": [{"web": {"uri": ADDRESS, "title": "Tides"}}], "groundingSupports": [support]}
    *_, cited, _ = await answer(GEMINI, gemini({"text": "ä öh "}, {"text": "yes"}, groundingMetadata=grounded))
    assert isinstance(cited, CitationPart)
    assert (cited.provider, cited.start, cited.end) == ("gemini", 2, 4)


async def test_code_that_gemini_ran() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}}
    ran, *_ = await answer(GEMINI, gemini(code, result, {"text": "Hm."}))
    assert (ran.tool_name, json.loads(ran.input)["code"], ran.output, ran.error) == (
        "code_execution",
        "1+1",
        None,
        "no",
    )


@pytest.mark.parametrize(
    "events",
    [
        [("content_block_start", {"index": 0, "content_block": {"type": "server_tool_use", "id": 7, "name": None}})],
        [("content_block_start", {"index": 0, "content_block": FOUND | {"content": [7, None, {"a": [1] * 50}]}})],
        [*claude(({"type": "text", "text": ""}, [{"type": "citations_delta", "citation": {"url": 7, "title": []}}]))],
    ],
)
async def test_hostile_events_break_nothing(events: Any) -> None:
    *_, reply = await answer(CLAUDE, events)
    assert isinstance(reply, Reply)


PNG = base64.b64encode(drawing()).decode()
SHOWN = {"type": "image_url", "index": 0, "image_url": {"url": f"data:image/png;base64,{PNG}"}}
INLINE = {"inlineData": {"mimeType": "image/png", "data": PNG}}
GENERATED = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": PNG}


@pytest.mark.parametrize(
    ("name", "events"),
    [
        (GPT, chat({"role": "assistant", "content": "Here."}, {"images": [SHOWN]}, {"images": [SHOWN]})),
        (ROUTED, chat({"role": "assistant", "content": "Here."}, {"images": [SHOWN]})),
        (GEMINI, gemini({"text": "Here."}, INLINE)),
        (RESPONSES, responses(GENERATED)),
    ],
)
async def test_a_picture_that_a_model_makes_comes_once_and_whole(name: str, events: Any) -> None:
    *_, picture, reply = await answer(name, events)
    assert picture == MadePicture(data=drawing())
    assert reply.outcome is Outcome.COMPLETE


@pytest.mark.slow
async def test_what_is_no_picture_that_can_be_taken_says_why(monkeypatch: Any) -> None:
    def gives(url: Any) -> Any:
        return chat({"role": "assistant", "content": "Here.", "images": [{"image_url": {"url": url}}]})

    _, picture, _ = await answer(GPT, gives("https://a.example/x.png"))
    assert (picture.source, picture.data) == ("https://a.example/x.png", b"")
    assert "not followed" in picture.problem
    _, picture, _ = await answer(GPT, gives("data:image/png;base64,A!"))
    assert picture.data == b"A!"
    monkeypatch.setattr("mnesis_core.providers.answer.MOST_CODED", 4_000)
    _, picture, reply = await answer(GPT, gives("data:image/png;base64," + "A" * 8_000))
    assert (picture.data, "6,000 bytes" in picture.problem) == (b"", True)
    assert reply.text == "Here."

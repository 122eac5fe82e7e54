"""What OpenAI Chat Completions messages become."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import Source, Usage
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DocumentPart,
    ImagePart,
    MediaPart,
    ProviderPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolState,
)
from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.reading import dump_json
from mnesis_core.transcripts.values import Transcript
from tests.support.material.transcript_lines import (
    data,
    everything,
    labels,
    messages,
    notes,
    only,
    parsed,
    spoken,
    tools,
)

FORMAT = "openai_chat"
HELLO = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
]


def conversation(*said: Any, **about: Any) -> Transcript:
    return only(parsed(FORMAT, {"messages": list(said), **about}))


def call(call_id: str, name: str = "look", arguments: Any = '{"at": 1.50}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"messages": HELLO}),
        json.dumps({"messages": HELLO}, indent=2),
        json.dumps(HELLO),
        json.dumps(HELLO, indent=2),
        json.dumps([{"messages": HELLO}], indent=2),
        "\n".join(json.dumps(message) for message in HELLO),
        "\r\n".join(["", *(json.dumps(message) for message in HELLO), ""]),
        json.dumps({"messages": HELLO}) + "\n",
    ],
)
def test_every_way_to_write_one_conversation_gives_the_same(text: str) -> None:
    transcript = only(FORMATS[FORMAT](text))
    assert transcript.system_prompt == "Be brief."
    assert spoken(transcript) == [("user", ["Hello"]), ("assistant", ["Hi"])]
    assert len(transcript.turns) == 1


@pytest.mark.parametrize("shape", [lambda each: {"messages": each}, lambda each: each])
def test_one_conversation_per_line(shape: Any) -> None:
    result = parsed(FORMAT, shape(HELLO), shape(HELLO[1:]))
    assert [each.system_prompt for each in result.transcripts] == ["Be brief.", ""]
    assert result.report.read["conversation"] == 2


def test_a_list_of_conversations() -> None:
    assert len(FORMATS[FORMAT](json.dumps([{"messages": HELLO}, {"messages": HELLO[1:]}])).transcripts) == 2


def test_the_first_developer_message_is_the_system_prompt_and_later_ones_are_messages() -> None:
    transcript = conversation(
        {"role": "developer", "content": "Be brief.", "name": "ops"},
        {"role": "user", "content": "Hello"},
        {"role": "system", "content": "Be long."},
    )
    assert transcript.system_prompt == "Be brief."
    assert spoken(transcript)[1] == ("system", ["Be long."])
    assert json.loads(data(messages(transcript)[0], "openai_chat:message")[0]) == {"role": "developer", "name": "ops"}


def test_a_system_message_that_is_not_the_first_one_waits_for_the_user() -> None:
    transcript = conversation({"role": "system", "content": "A"}, {"role": "system", "content": "B"}, HELLO[1])
    assert [[message.role for message in turn.messages] for turn in transcript.turns] == [["system", "user"]]


def test_tool_messages_complete_the_calls_they_name() -> None:
    transcript = conversation(
        HELLO[1],
        {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2", "find", "not json")]},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
        {"role": "assistant", "content": "There."},
    )
    first, second = tools(transcript)
    assert (first.tool_name, first.input, first.output, first.state) == (
        "look",
        '{"at": 1.50}',
        "a",
        ToolState.COMPLETED,
    )
    assert (second.input, second.output) == ("not json", "two")
    assert "openai_chat:image_url" in labels(messages(transcript)[1])
    assert spoken(transcript)[-1] == ("assistant", ["There."])


def test_call_ids_that_come_again_in_a_later_turn_go_to_the_later_call() -> None:
    asked = {"role": "assistant", "tool_calls": [call("c1")]}
    transcript = conversation(
        HELLO[1], asked, {"role": "tool", "tool_call_id": "c1", "content": "one"},
        HELLO[1], asked, {"role": "tool", "tool_call_id": "c1", "content": "two"},
    )  # fmt: skip
    assert [part.output for part in tools(transcript)] == ["one", "two"]


def test_the_older_function_call_is_read_too() -> None:
    transcript = conversation(
        HELLO[1],
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "found"},
    )
    (part,) = tools(transcript)
    assert (part.tool_name, part.tool_call_id, part.output) == ("look", "call_1", "found")


def test_a_custom_tools_input_is_plain_text() -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    (part,) = tools(conversation(HELLO[1], {"role": "assistant", "tool_calls": [custom]}))
    assert (part.tool_name, part.input, part.error) == ("shell", "ls -l", "no result in the transcript")


def test_a_result_without_a_call_and_an_unknown_role_are_data() -> None:
    result = parsed(
        FORMAT,
        {"messages": [HELLO[1], {"role": "tool", "content": "lost"}, {"role": "critic", "content": "meh"}, 7]},
    )
    (message,) = messages(only(result))
    assert labels(message) == ["openai_chat:tool", "openai_chat:critic", "openai_chat:message"]
    assert notes(result)["tool results without a call are kept as data"] == 1
    assert result.report.read == {"conversation": 1, "user": 1, "tool": 1, "unknown": 2}


def test_pictures_sounds_and_files_are_parts_and_their_bytes_are_files() -> None:
    inside = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n", "detail": "low"}}
    linked = {"type": "input_image", "image_url": "https://a.example/b.png"}
    written = {"type": "input_image", "image_url": "data:image/svg+xml,%3Csvg/%3E"}
    sound = {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}}
    file = {"type": "file", "file": {"filename": "log.pdf", "file_data": "data:application/pdf;base64,cGRm"}}
    unreadable = {"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}
    said = [
        {"type": "text", "text": "Look"},
        inside,
        linked,
        written,
        sound,
        file,
        unreadable,
        {"type": "hologram"},
        "plain",
    ]
    [message] = messages(conversation({"role": "user", "content": said}))
    first, second, drawn, third, fourth = (part for part in message.parts if isinstance(part, MediaPart))
    assert (type(first), first.media_type, first.size) == (ImagePart, "image/png", 3)
    assert second == ImagePart(source="https://a.example/b.png")
    assert (type(drawn), drawn.media_type, drawn.size) == (ImagePart, "image/svg+xml", 6)
    assert (type(third), third.media_type) == (AudioPart, "audio/wav")
    assert (type(fourth), fourth.media_type, fourth.name) == (DocumentPart, "application/pdf", "log.pdf")
    assert [file.data for file in message.files] == [b"img", b"<svg/>", b"wav", b"pdf"]
    kept = [json.loads(text) for text in data(message, "openai_chat:image_url")]
    assert kept == [{"type": "image_url", "image_url": {"detail": "low"}}, unreadable]
    assert data(message, "openai_chat:hologram")
    assert spoken(conversation({"role": "user", "content": said}))[0] == ("user", ["Look", "plain"])


def test_refusals_sources_speech_and_thinking_are_parts_of_the_answer() -> None:
    cited = {
        "type": "url_citation",
        "url_citation": {"url": "https://a.example", "title": "Tides", "start_index": 3, "end_index": 9},
    }
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    answer = {
        **{"role": "assistant", "content": "Fourteen.", "refusal": "I will not.", "annotations": [cited]},
        **{"audio": {"id": "a1", "data": "d2F2", "transcript": "Fourteen."}, "thinking_blocks": [thinking]},
    }
    message = messages(conversation(HELLO[1], answer))[1]
    opaque, words, refusal, sound, _, citation = message.parts
    assert opaque == ProviderPart(provider="anthropic", kind="thinking", data=dump_json(thinking))
    assert (words, refusal) == (TextPart(text="Fourteen."), RefusalPart(text="I will not."))
    assert isinstance(sound, AudioPart)
    assert (sound.caption, message.files[0].data) == ("Fourteen.", b"wav")
    assert json.loads(data(message, "openai_chat:audio")[0]) == {"id": "a1"}
    assert citation == CitationPart(
        title="Tides", url="https://a.example", start=3, end=9, provider="openai", data=dump_json(cited)
    )
    assert labels(message) == ["openai_chat:audio"]


def test_reasoning_usage_times_and_models_are_taken_where_they_stand() -> None:
    transcript = conversation(
        HELLO[1],
        {
            "role": "assistant",
            "id": "m-2",
            "content": "Hi",
            "reasoning_content": "Be kind.",
            "model": "gpt-x",
            "created_at": 1_700_000_000,
            "finish_reason": "stop",
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            "refusal": None,
            "annotations": [],
        },
        id="conv",
        title="A talk",
        model="gpt-y",
        tools=[{"type": "function"}],
    )
    answer = messages(transcript)[1]
    assert (transcript.external_id, transcript.title, transcript.model) == ("conv", "A talk", "gpt-x")
    assert (answer.external_id, answer.finish_reason, answer.model) == ("m-2", "stop", "gpt-x")
    assert answer.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert answer.usage == Usage(input_tokens=9, output_tokens=2, cache_read_tokens=4, source=Source.IMPORTED)
    assert answer.parts[0] == ReasoningPart(text="Be kind.")
    assert "refusal" not in data(answer, "openai_chat:message")[0]
    assert '"tools"' in data(messages(transcript)[0], "openai_chat:conversation")[0]


def test_a_conversation_without_an_id_gets_the_same_one_every_time_and_another_one_for_other_words() -> None:
    first, again, other = (
        parsed(FORMAT, {"messages": said}).transcripts[0].external_id for said in (HELLO, HELLO, HELLO[1:])
    )
    assert first == again != other
    assert first.startswith("sha256:")
    ids = [each.external_id for each in parsed(FORMAT, {"messages": HELLO}, {"messages": HELLO}).transcripts]
    assert ids == [first, f"{first}#2"]


def test_loose_messages_before_and_after_a_conversation_are_conversations_of_their_own() -> None:
    result = parsed(FORMAT, HELLO[1], {"messages": HELLO}, HELLO[1], HELLO[2])
    assert [len(messages(each)) for each in result.transcripts] == [1, 2, 2]


def test_bad_lines_are_kept_on_the_nearest_message() -> None:
    result = parsed(FORMAT, '{"role": "user", ', HELLO[1], '"just text"', HELLO[2], "[[[")
    transcript = only(result)
    assert spoken(transcript) == [("user", ["Hello"]), ("assistant", ["Hi"])]
    assert result.report.read["unreadable"] == 3
    found = everything(result)
    assert '{"role": "user", ' in found
    assert "just text" in found
    assert "[[[" in found


def test_a_deep_message_in_a_list_does_not_take_the_others_along() -> None:
    deep = "[" * 3000 + "]" * 3000
    result = FORMATS[FORMAT](f'[{json.dumps(HELLO[1])}, {{"role": "user", "content": {deep}}}, {json.dumps(HELLO[2])}]')
    assert spoken(only(result)) == [("user", ["Hello"]), ("assistant", ["Hi"])]
    assert deep in data(messages(only(result))[0], "openai_chat:unreadable")[0]


@pytest.mark.parametrize("text", ["", "[]", "{}", "hello", '{"messages": "none"}', "[1, 2]", "{\n"])
def test_a_file_without_a_message_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="holds no openai_chat transcript"):
        FORMATS[FORMAT](text)

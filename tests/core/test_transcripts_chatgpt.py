"""What conversations of the ChatGPT data export become."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import AudioPart, CitationPart, DocumentPart, ImagePart, MediaPart, ReasoningPart, ToolState
from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.values import ParseResult
from tests.support.transcript_lines import data, everything, labels, messages, notes, only, spoken, tools

CLOCK = 1_700_000_000


def node(node_id: str, parent: str | None, role: str = "", said: Any = "", **message: Any) -> dict[str, Any]:
    if not role:
        return {"id": node_id, "message": None, "parent": parent, "children": []}
    name = message.pop("name", None)
    content = said if isinstance(said, dict) else {"content_type": "text", "parts": [said]}
    body = {"id": node_id, "author": {"role": role, "name": name}, "content": content, "create_time": CLOCK}
    return {"id": node_id, "message": {**body, **message}, "parent": parent, "children": []}


def exported(*nodes: dict[str, Any], current: str | None = None, **fields: Any) -> dict[str, Any]:
    mapping = {each["id"]: each for each in nodes}
    about = {"title": "A talk", "create_time": CLOCK - 9, "conversation_id": "conv", "default_model_slug": "gpt-4o"}
    return {**about, "mapping": mapping, "current_node": current or nodes[-1]["id"], **fields}


def parsed(*conversations: Any) -> ParseResult:
    return FORMATS["chatgpt"](json.dumps(list(conversations)))


def test_the_path_to_the_current_node_is_the_conversation() -> None:
    result = parsed(
        exported(
            node("root", None),
            node("s", "root", "system", "Be brief."),
            node("u1", "s", "user", "Hello"),
            node("a1", "u1", "assistant", "Hi", metadata={"model_slug": "gpt-5", "finish_details": {"type": "stop"}}),
        )
    )
    transcript = only(result)
    assert (transcript.external_id, transcript.title, transcript.model) == ("conv", "A talk", "gpt-5")
    assert transcript.system_prompt == "Be brief."
    assert spoken(transcript) == [("user", ["Hello"]), ("assistant", ["Hi"])]
    answer = messages(transcript)[1]
    assert (answer.external_id, answer.model, answer.finish_reason) == ("a1", "gpt-5", "stop")
    assert answer.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [(skip.kind, skip.count) for skip in result.report.skipped] == [("node", 1)]


def test_every_other_branch_is_a_fork_that_says_where_it_leaves() -> None:
    result = parsed(
        exported(
            node("u1", None, "user", "Hello"),
            node("a1", "u1", "assistant", "Hi"),
            node("a2", "u1", "assistant", "Good day"),
            node("u2", "a1", "user", "One"),
            node("u3", "a1", "user", "Two"),
            node("a3", "u3", "assistant", "Two it is"),
            node("u4", "a2", "user", "Never mind"),
            current="u2",
        )
    )
    transcript = only(result)
    assert spoken(transcript) == [("user", ["Hello"]), ("assistant", ["Hi"]), ("user", ["One"])]
    forks = {
        child.external_id: (child.parent.transcript_id, child.parent.message_id, [each[1][0] for each in spoken(child)])
        for child in transcript.children
        if child.parent and child.parent.kind == "fork"
    }
    assert forks == {
        "conv/a2": ("conv", "u1", ["Good day", "Never mind"]),
        "conv/u3": ("conv", "a1", ["Two", "Two it is"]),
    }


def test_a_fork_of_a_fork_names_the_fork_and_comes_after_it() -> None:
    transcript = only(
        parsed(
            exported(
                node("u1", None, "user", "Hello"),
                node("a1", "u1", "assistant", "Hi"),
                node("a2", "u1", "assistant", "Good day"),
                node("x1", "a2", "user", "old try"),
                node("x2", "a2", "user", "new try"),
                current="a1",
            )
        )
    )
    assert [child.external_id for child in transcript.children] == ["conv/a2", "conv/x1"]
    assert [[each[1][0] for each in spoken(child)] for child in transcript.children] == [
        ["Good day", "new try"],
        ["old try"],
    ]
    inner = transcript.children[1].parent
    assert inner is not None
    assert (inner.transcript_id, inner.message_id) == ("conv/a2", "a2")


def test_nodes_in_a_circle_and_nodes_without_a_parent_are_kept() -> None:
    result = parsed(
        exported(
            node("x", "y", "user", "round"),
            node("y", "x", "assistant", "and round"),
            node("z", "gone", "user", "adrift"),
            node("z1", "z", "assistant", "first try"),
            node("z2", "z", "assistant", "still adrift"),
            node("u1", None, "user", "Hello"),
        )
    )
    assert spoken(only(result)) == [("user", ["Hello"])]
    lost = [[text for _, texts in spoken(child) for text in texts] for child in only(result).children]
    assert lost == [["adrift", "still adrift"], ["first try"], ["round", "and round"]]
    assert [child.parent.message_id for child in only(result).children if child.parent] == ["", "z", ""]


def test_a_current_node_inside_a_circle_ends_a_conversation_all_the_same() -> None:
    circle = [node("x", "y", "user", "round"), node("y", "x", "assistant", "and round")]
    assert spoken(only(parsed(exported(*circle)))) == [("user", ["round"]), ("assistant", ["and round"])]


def test_without_a_current_node_the_newest_leaf_ends_the_conversation() -> None:
    one = exported(
        node("u1", None, "user", "Hello"),
        node("a1", "u1", "assistant", "new", create_time=CLOCK + 5),
        node("a2", "u1", "assistant", "old"),
        current="gone",
    )
    assert spoken(only(parsed(one)))[1] == ("assistant", ["new"])


def test_a_message_to_a_tool_is_a_call_and_the_tools_message_its_result() -> None:
    code = {"content_type": "code", "language": "python", "text": "1 + 1"}
    result = parsed(
        exported(
            node("u1", None, "user", "Compute"),
            node("c1", "u1", "assistant", code, recipient="python"),
            node("t1", "c1", "tool", {"content_type": "execution_output", "text": "2"}, name="python"),
            node("c2", "t1", "assistant", "search(x)", recipient="browser"),
            node("t2", "c2", "tool", {"content_type": "system_error", "text": "down"}, name="browser"),
            node("t3", "t2", "tool", "more", name="browser"),
            node("a1", "t3", "assistant", "Two."),
        )
    )
    first, second = tools(only(result))
    assert (first.tool_name, first.tool_call_id, first.input, first.output) == ("python", "c1", "1 + 1", "2")
    assert (second.state, second.error) == (ToolState.ERROR, "down")
    assert data(messages(only(result))[2], "chatgpt:tool")
    assert notes(result)["tool results without a call are kept as data"] == 1


def test_pictures_and_speech_and_thoughts() -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    speech = {"content_type": "audio_transcription", "text": "spoken words"}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "Think hard", "done": True}]}
    transcript = only(
        parsed(
            exported(
                node("u1", None, "user", {"content_type": "multimodal_text", "parts": ["See", picture, speech, ""]}),
                node("a1", "u1", "assistant", thoughts),
            )
        )
    )
    assert spoken(transcript)[0] == ("user", ["See", "spoken words"])
    assert messages(transcript)[0].parts[2] == ImagePart(source="file-service://x")
    assert labels(messages(transcript)[0])[1:] == ["chatgpt:audio_transcription", "chatgpt:records"]
    assert messages(transcript)[1].parts[0] == ReasoningPart(text="Plan\nThink hard")


def test_hidden_instructions_and_empty_system_messages_are_data_and_start_no_turn() -> None:
    custom = {"content_type": "user_editable_context", "user_profile": "I am Ada"}
    transcript = only(
        parsed(
            exported(
                node("s", None, "system", ""),
                node("c", "s", "user", custom),
                node("u1", "c", "user", "Hello"),
                node("s2", "u1", "system", ""),
                node("a1", "s2", "assistant", "Hi"),
            )
        )
    )
    first = messages(transcript)[0]
    assert spoken(transcript) == [("user", ["Hello"]), ("assistant", ["Hi"])]
    assert "I am Ada" in data(first, "chatgpt:user_editable_context")[0]
    assert labels(first)[0] == "chatgpt:conversation"
    assert "chatgpt:system" in labels(first)


def test_what_is_not_as_expected_is_kept_as_data() -> None:
    one = exported(node("u1", None, "user", "Hello"), node("x", "u1", "critic", "meh"), node("a1", "x", "assistant", 7))
    one["mapping"]["odd"] = "no node"
    one["mapping"]["u1"]["message"]["content"]["more"] = "kept too"
    result = parsed(one, {"no": "mapping"})
    found = everything(result)
    assert all(words in found for words in ("no node", "meh", "kept too", '{"no":"mapping"}'))
    assert result.report.read["unreadable"] == 1


def test_two_conversations_and_a_single_one() -> None:
    hello = node("u1", None, "user", "Hello")
    assert [each.external_id for each in parsed(exported(hello), exported(hello)).transcripts] == ["conv", "conv#2"]
    assert only(FORMATS["chatgpt"](json.dumps(exported(hello), indent=1))).title == "A talk"


def test_a_long_conversation_does_not_run_out_of_stack() -> None:
    nodes = [node("n0", None, "user", "0"), *(node(f"n{i}", f"n{i - 1}", "user", str(i)) for i in range(1, 5000))]
    assert len(only(parsed(exported(*nodes))).turns) == 5000
    forked = [node("n0", None, "user", "0"), *(node(f"n{i}", f"n{(i - 1) // 2}", "user", "x") for i in range(1, 5000))]
    transcript = only(parsed(exported(*forked)))
    assert sum(len(each.turns) for each in (transcript, *transcript.children)) == 5000


def test_a_file_without_a_conversation_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="holds no chatgpt transcript"):
        FORMATS["chatgpt"]("[{}]")


def test_pictures_attachments_and_sources_are_parts() -> None:
    made = {"dalle": {"prompt": "a quay"}}
    picture = {
        **{"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1", "size_bytes": 120},
        **{"width": 40, "height": 30, "metadata": made},
    }
    talk = {
        "content_type": "real_time_user_audio_video_asset_pointer",
        "audio_asset_pointer": {"asset_pointer": "sediment://a"},
    }
    files = [
        {"id": "file_1", "name": "quay.png"},
        {"id": "file_2", "name": "log.pdf", "mime_type": "application/pdf", "size": 9},
    ]
    cited = {
        "start_ix": 2,
        "end_ix": 8,
        "metadata": {"type": "webpage", "title": "Tides", "url": "https://a.example", "text": "high"},
    }
    items = [{"title": "Tides", "url": "https://a.example"}, {"title": "Quays", "url": "https://b.example"}]
    references = [{"type": "grouped_webpages", "start_idx": 2, "end_idx": 8, "items": items}, {"type": "hidden"}]
    transcript = only(
        parsed(
            exported(
                node(
                    "u1",
                    None,
                    "user",
                    {"content_type": "multimodal_text", "parts": [picture, talk]},
                    metadata={"attachments": files},
                ),
                node("c1", "u1", "assistant", "draw", recipient="dalle"),
                node(
                    "t1",
                    "c1",
                    "tool",
                    {"content_type": "multimodal_text", "parts": [{**picture, "metadata": None}]},
                    name="dalle",
                ),
                node(
                    "a1",
                    "t1",
                    "assistant",
                    "Fourteen.",
                    metadata={"citations": [cited], "content_references": references},
                ),
            )
        )
    )
    asked, drawn, answer = messages(transcript)
    assert [part for part in asked.parts if isinstance(part, MediaPart)] == [
        ImagePart(source="sediment://file_1", size=120, width=40, height=30),
        AudioPart(source="sediment://a"),
        DocumentPart(source="file_2", name="log.pdf", media_type="application/pdf", size=9),
    ]
    assert json.loads(data(asked, "chatgpt:image_asset_pointer")[0]) == picture
    shown = [part for part in drawn.parts if isinstance(part, MediaPart)]
    assert [part.tool_call_id for part in shown] == ["c1"]
    assert not data(drawn, "chatgpt:image_asset_pointer")
    assert [part for part in answer.parts if isinstance(part, CitationPart)] == [
        CitationPart(text="high", title="Tides", url="https://a.example", start=2, end=8),
        CitationPart(title="Quays", url="https://b.example", start=2, end=8),
    ]
    assert "high" in data(answer, "chatgpt:records")[0]

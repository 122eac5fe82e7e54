"""What conversations of the ChatGPT data export become."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import AudioPart, CitationPart, DocumentPart, ImagePart, MediaPart, ReasoningPart, ToolState
from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.building import BRANCHES
from mnesis_core.transcripts.chatgpt import ADRIFT
from mnesis_core.transcripts.values import ROOT, ParseResult, Transcript
from tests.support.material.transcript_lines import (
    SECOND,
    data,
    everything,
    exported,
    labels,
    messages,
    node,
    notes,
    only,
    spoken,
    tools,
    tree,
)

PICTURE = {
    **{"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1", "size_bytes": 120},
    **{"width": 40, "height": 30, "metadata": {"dalle": {"prompt": "a quay"}}},
}


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


def test_edited_questions_and_other_answers_are_branches() -> None:
    result = parsed(
        exported(
            node("u1", None, "user", "Hello"),
            node("a1", "u1", "assistant", "Hi"),
            node("a2", "u1", "assistant", "Good day"),
            node("u2", "a1", "user", "One"),
            node("u3", "a1", "user", "Two"),
            node("a3", "u3", "assistant", "Two it is"),
            node("u4", "a2", "user", "Never mind"),
            current="a3",
        )
    )
    transcript = only(result)
    assert tree(transcript) == [("", ["u1", "a1"]), ("", ["u2"]), ("u1", ["a2"]), ("", ["u4"]), ("a1", ["u3", "a3"])]
    assert (transcript.chosen, transcript.children) == ("a3", ())
    assert notes(result) == {BRANCHES: 1}


def test_branches_leave_branches_and_the_beginning_in_the_order_of_the_attempts() -> None:
    conversation = exported(
        node("root", None),
        node("x3", "root", "user", "third"),
        node("u1", "root", "user", "Hello"),
        node("a1", "u1", "assistant", "Hi"),
        node("a2", "u1", "assistant", "Good day"),
        node("x1", "a2", "user", "old try"),
        node("x2", "a2", "user", "new try"),
        current="gone",
    )
    conversation["mapping"]["root"]["children"] = ["u1", "x3", [], "nobody"]
    conversation["mapping"]["x2"]["message"]["create_time"] = SECOND + 1
    transcript = only(parsed(conversation))
    assert tree(transcript) == [
        *(("", ["u1", "a1"]), (ROOT, ["x3"]), ("u1", ["a2"]), ("", ["x1"]), ("a2", ["x2"])),
    ]
    assert transcript.chosen == "x2"


def test_a_conversation_without_other_attempts_is_a_line() -> None:
    one = node("u1", None, "user", "Hello"), node("a1", "u1", "assistant", "Hi")
    transcript = only(parsed(exported(*one)))
    assert (transcript.is_line, transcript.chosen) == (True, "")


def test_what_belongs_to_a_branch_without_a_message_is_kept_where_it_leaves() -> None:
    hidden = {"content_type": "user_editable_context", "user_profile": "I am Ada"}
    transcript = only(
        parsed(
            exported(
                node("root", None),
                node("h0", "root", "user", {**hidden, "user_profile": "of the root"}),
                node("u1", "h0", "user", "Hello"),
                node("a1", "u1", "assistant", "Hi"),
                node("h1", "u1", "user", hidden),
                node("s", "h1", "system", "Be brief."),
                node("h2", "root", "user", {**hidden, "user_profile": "of no message"}),
                current="a1",
            )
        )
    )
    assert tree(transcript) == [("", ["u1", "a1"]), ("u1", ["s"])]
    kept = [data(message, "chatgpt:user_editable_context") for message in messages(transcript)]
    assert [len(texts) for texts in kept] == [1, 1, 1]
    assert "of no message" in kept[1][0]
    assert transcript.system_prompt == ""


def test_nodes_in_a_circle_and_nodes_without_a_parent_are_branches_and_are_told() -> None:
    result = parsed(
        exported(
            node("x", "y", "user", "round"),
            node("y", "x", "assistant", "and round"),
            node("z", "gone", "user", "adrift"),
            node("z1", "z", "assistant", "first try"),
            node("z2", "z", "assistant", "still adrift"),
            node("u1", None, "user", "Hello"),
            node("me", "me", "user", "alone"),
            current="u1",
        )
    )
    transcript = only(result)
    assert tree(transcript) == [
        *(("", ["u1"]), (ROOT, ["z", "z1"]), ("z", ["z2"]), (ROOT, ["x", "y"]), (ROOT, ["me"])),
    ]
    assert transcript.chosen == "u1"
    assert notes(result) == {BRANCHES: 1, ADRIFT: 3}


@pytest.mark.slow
def test_ten_thousand_attempts_and_a_chain_of_three_thousand_branches_are_read() -> None:
    said = [node("u", None, "user", "?"), *(node(f"a{i}", "u", "assistant", str(i)) for i in range(10_000))]
    transcript = only(parsed(exported(*said, current="a7")))
    assert [turn.continues for turn in transcript.turns] == ["", *["u"] * 9_999]
    chain = [node("n0", None, "user", "0")]
    for place in range(1, 3_000):
        chain += [node(f"f{place}", f"n{place - 1}", "assistant", "x"), node(f"n{place}", f"n{place - 1}", "user", "y")]
    deep = only(parsed(exported(*chain)))
    assert [turn.continues for turn in deep.turns] == ["", *(f"n{place}" for place in range(2_999))]
    assert deep.chosen == "n2999"


def test_a_current_node_inside_a_circle_ends_a_conversation_all_the_same() -> None:
    circle = [node("x", "y", "user", "round"), node("y", "x", "assistant", "and round")]
    assert spoken(only(parsed(exported(*circle)))) == [("user", ["round"]), ("assistant", ["and round"])]


def test_without_a_current_node_the_newest_leaf_ends_the_conversation() -> None:
    one = exported(
        node("u1", None, "user", "Hello"),
        node("a1", "u1", "assistant", "new", create_time=SECOND + 5),
        node("a2", "u1", "assistant", "old"),
        current="gone",
    )
    assert only(parsed(one)).chosen == "a1"


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
    assert len(transcript.turns) == 5000


def test_a_file_without_a_conversation_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="holds no chatgpt transcript"):
        FORMATS["chatgpt"]("[{}]")


def talk_with_media() -> Transcript:
    speech = {
        "content_type": "real_time_user_audio_video_asset_pointer",
        "audio_asset_pointer": {"asset_pointer": "sediment://a"},
    }
    files = [
        {"id": "file_1", "name": "quay.png"},
        {"id": "file_2", "name": "log.pdf", "mime_type": "application/pdf", "size": 9},
    ]
    source = {"type": "webpage", "title": "Tides", "url": "https://a.example", "text": "high"}
    items = [{"title": "Tides", "url": "https://a.example"}, {"title": "Quays", "url": "https://b.example"}]
    cited = {
        "citations": [{"start_ix": 2, "end_ix": 8, "metadata": source}],
        "content_references": [
            {"type": "grouped_webpages", "start_idx": 2, "end_idx": 8, "items": items},
            {"type": "hidden"},
        ],
    }
    asked = {"content_type": "multimodal_text", "parts": [PICTURE, speech]}
    drawn = {"content_type": "multimodal_text", "parts": [{**PICTURE, "metadata": None}]}
    conversation = exported(
        node("u1", None, "user", asked, metadata={"attachments": files}),
        node("c1", "u1", "assistant", "draw", recipient="dalle"),
        node("t1", "c1", "tool", drawn, name="dalle"),
        node("a1", "t1", "assistant", "Fourteen.", metadata=cited),
    )
    return only(parsed(conversation))


def test_pictures_attachments_and_sources_are_parts() -> None:
    asked, drawn, answer = messages(talk_with_media())
    assert [part for part in asked.parts if isinstance(part, MediaPart)] == [
        ImagePart(source="sediment://file_1", size=120, width=40, height=30),
        AudioPart(source="sediment://a"),
        DocumentPart(source="file_2", name="log.pdf", media_type="application/pdf", size=9),
    ]
    assert json.loads(data(asked, "chatgpt:image_asset_pointer")[0]) == PICTURE
    shown = [part for part in drawn.parts if isinstance(part, MediaPart)]
    assert [part.tool_call_id for part in shown] == ["c1"]
    assert not data(drawn, "chatgpt:image_asset_pointer")
    assert [part for part in answer.parts if isinstance(part, CitationPart)] == [
        CitationPart(text="high", title="Tides", url="https://a.example", start=2, end=8),
        CitationPart(title="Quays", url="https://b.example", start=2, end=8),
    ]
    assert "high" in data(answer, "chatgpt:records")[0]

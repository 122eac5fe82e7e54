"""What each kind of Claude Code record becomes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import Source, Usage
from mnesis_core.messages import (
    CitationPart,
    CompactionMarkerPart,
    ImagePart,
    MediaPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    TextPart,
    ToolState,
)
from mnesis_core.transcripts.building import BRANCHES
from mnesis_core.transcripts.reading import dump_json
from mnesis_core.transcripts.values import ROOT
from tests.support.material.transcript_lines import (
    answered,
    data,
    everything,
    labels,
    messages,
    notes,
    only,
    parsed,
    said,
    spoken,
    text,
    texts,
    tool_result,
    tool_use,
    tools,
    tree,
)

FORMAT = "claude_code"


def second(number: int) -> datetime:
    return datetime(2026, 2, 10, 21, 0, number, tzinfo=UTC)


def test_user_text_starts_a_turn_and_a_lone_tool_result_does_not() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "first"),
            answered("a1", "m1", tool_use("t1")),
            said("u2", [tool_result("t1")]),
            answered("a2", "m2", text("done")),
            said("u3", [text("second")]),
        )
    )
    assert [[message.external_id for message in turn.messages] for turn in transcript.turns] == [
        ["u1", "a1", "a2"],
        ["u3"],
    ]
    assert [turn.external_id for turn in transcript.turns] == ["u1", "u3"]


def chained(*records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records of which each has the one before as its parent, unless it names one."""
    before = None
    for record in records:
        record["parentUuid"] = record["parentUuid"] or before
        before = record["uuid"]
    return list(records)


def at(parent: str, record: dict[str, Any]) -> dict[str, Any]:
    return record | {"parentUuid": parent}


def test_a_question_with_an_earlier_parent_begins_a_branch_and_so_does_a_second_answer() -> None:
    hook = {"type": "system", "uuid": "s1", "parentUuid": None, "sessionId": "S"}
    result = parsed(
        FORMAT,
        *chained(
            hook,
            said("u1", "first"),
            answered("a1", "m1", text("yes")),
            said("u2", "second"),
            answered("a2", "m2", text("no")),
            at("u2", answered("a3", "m3", text("or yes"))),
            at("a1", {**hook, "uuid": "s2"}),
            said("u3", "a caveat", isMeta=True),
            said("u4", "second, edited"),
            answered("a4", "m4", text("well")),
            at("s1", said("u5", "first, edited")),
        ),
    )
    assert tree(only(result)) == [
        *(("", ["u1", "a1"]), ("", ["u2", "a2"]), ("u2", ["a3"]), ("a1", ["u3", "u4", "a4"]), (ROOT, ["u5"])),
    ]
    assert notes(result)[BRANCHES] == 3


def test_results_of_several_calls_and_what_follows_them_are_no_branches() -> None:
    records = chained(
        said("u1", "go"),
        answered("a1", "m1", tool_use("t1")),
        answered("a2", "m1", tool_use("t2")),
        at("a1", said("r1", [tool_result("t1")])),
        at("a2", said("r2", [tool_result("t2")])),
        at("r1", answered("a3", "m2", text("done"))),
        at("a1", answered("a4", "m3", text("more"))),
    )
    assert only(parsed(FORMAT, *records)).is_line


def test_a_parent_that_comes_later_or_never_or_is_the_record_itself_is_told() -> None:
    records = chained(
        said("u1", "one"), at("u3", said("u2", "two")), at("u3", said("u3", "three")), at("x", said("u4", "four"))
    )
    result = parsed(FORMAT, *records)
    assert tree(only(result)) == [("", ["u1"]), ("", ["u2"]), ("", ["u3"]), ("", ["u4"])]
    assert notes(result) == {
        "messages name a parent that is not before them in the file; they continue the one before": 3
    }


def test_a_meta_record_is_a_user_message_inside_the_running_turn() -> None:
    transcript = only(parsed(FORMAT, said("u1", "go"), said("u2", "a caveat", isMeta=True), said("u3", "on")))
    assert [len(turn.messages) for turn in transcript.turns] == [2, 1]
    assert spoken(transcript)[1] == ("user", ["a caveat"])


def test_meta_records_before_the_first_words_belong_to_the_first_turn() -> None:
    transcript = only(parsed(FORMAT, said("u1", "reminder", isMeta=True), said("u2", "go"), said("u3", "on")))
    assert [len(turn.messages) for turn in transcript.turns] == [2, 1]


def test_consecutive_records_of_one_message_id_are_one_message_with_the_last_numbers() -> None:
    early = {"input_tokens": 3, "output_tokens": 1}
    final = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 20, "output_tokens": 9}
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go", 1),
            answered("a1", "m1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, second=2, usage=early),
            answered("a2", "m1", text("so"), second=3, usage=early),
            answered("a3", "m1", tool_use("t1"), second=4, usage=final, stop_reason="tool_use"),
        )
    )
    message = messages(transcript)[1]
    assert (message.external_id, message.created_at, message.model) == ("a1", second(2), "claude-x")
    assert message.finish_reason == "tool_use"
    assert message.usage == Usage(
        input_tokens=33, output_tokens=9, cache_read_tokens=10, cache_write_tokens=20, source=Source.IMPORTED
    )
    assert [type(part).__name__ for part in message.parts] == [
        "ReasoningPart", "ProviderPart", "TextPart", "ToolPart", "DataPart",
    ]  # fmt: skip
    assert message.parts[0] == ReasoningPart(text="hm")
    assert message.parts[1] == ProviderPart(
        provider="anthropic", kind="thinking", data='{"type":"thinking","thinking":"hm","signature":"c2ln"}'
    )


def test_an_answer_goes_on_after_progress_records_and_after_a_result() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go"),
            answered("a1", "m1", tool_use("t1")),
            {"type": "progress", "uuid": "p1", "data": {}},
            said("u2", [tool_result("t1")]),
            answered("a2", "m1", tool_use("t2")),
            said("u3", [tool_result("t2", "two")]),
        )
    )
    assert len(messages(transcript)) == 2
    assert [part.output for part in tools(transcript)] == ["done", "two"]


def test_an_answer_that_comes_back_after_another_message_keeps_its_numbers_once() -> None:
    usage = {"input_tokens": 5, "output_tokens": 5}
    result = parsed(
        FORMAT,
        answered("a1", "m1", text("one"), usage=usage),
        said("u1", "wait", isMeta=True),
        answered("a2", "m1", text("two"), usage=usage),
    )
    usages = [message.usage for message in messages(only(result)) if message.role == "assistant"]
    assert usages[0] is None
    assert usages[1] is not None
    assert notes(result)["answers are interrupted by other messages; the usage stands on their last part"] == 1


def test_records_without_a_message_id_are_messages_of_their_own() -> None:
    transcript = only(parsed(FORMAT, said("u1", "go"), answered("a1", "", text("x")), answered("a2", "", text("y"))))
    assert spoken(transcript)[1:] == [("assistant", ["x"]), ("assistant", ["y"])]


def test_a_tool_call_bears_the_times_of_call_and_result() -> None:
    part = tools(
        only(
            parsed(
                FORMAT,
                answered("a1", "m1", tool_use("t1", command="ls"), second=5),
                said("u1", [tool_result("t1", "files")], 9),
            )
        )
    )[0]
    assert (part.tool_name, part.tool_call_id, json.loads(part.input)) == ("Bash", "t1", {"command": "ls"})
    assert (part.output, part.error, part.state) == ("files", None, ToolState.COMPLETED)
    assert (part.started_at, part.completed_at) == (second(5), second(9))


def test_an_error_result_is_the_calls_error() -> None:
    part = tools(
        only(parsed(FORMAT, answered("a", "m", tool_use("t")), said("u", [tool_result("t", "no", is_error=True)])))
    )[0]
    assert (part.output, part.error, part.state) == (None, "no", ToolState.ERROR)


def test_parallel_calls_take_their_results_by_id_in_any_order() -> None:
    parts = tools(
        only(
            parsed(
                FORMAT,
                answered("a", "m", tool_use("t1"), tool_use("t2")),
                said("u", [tool_result("t2", "two"), tool_result("t1", "one")]),
            )
        )
    )
    assert [part.output for part in parts] == ["one", "two"]


def test_a_result_of_blocks_gives_its_texts_to_the_call_and_keeps_the_image() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}}
    read = {"type": "image", "file": {"base64": "aW1n", "originalSize": 3}}
    result = parsed(
        FORMAT,
        answered("a", "m", tool_use("t")),
        said("u", [tool_result("t", [text("one"), image, text("two")])], toolUseResult=read),
    )
    message = messages(only(result))[0]
    assert tools(only(result))[0].output == "one\ntwo"
    [file] = message.files
    assert (file.data, file.media_type) == (b"img", "image/png")
    assert [part for part in message.parts if isinstance(part, ImagePart)] == [
        ImagePart(source=file.source, media_type="image/png", size=3, tool_call_id="t")
    ]
    # The bytes stand nowhere else.
    assert "aW1n" not in everything(result)
    assert file.source in data(message, "claude_code:toolUseResult")[0]
    lengths = json.loads(data(message, "claude_code:records")[0])[1]["message"]["content"][0]["content"]
    assert [block.get("characters") for block in lengths] == [3, None, 3]
    assert notes(result)["tool results of several texts are joined by line breaks"] == 1


def test_a_result_without_a_call_becomes_data_on_the_nearest_message() -> None:
    result = parsed(FORMAT, said("u1", "go"), said("u2", [tool_result("nobody", "lost words")]))
    message = messages(only(result))[0]
    assert "lost words" in data(message, "claude_code:tool_result")[0]
    assert "u2" in data(message, "claude_code:tool_result")[0]
    assert notes(result)["tool results without a call are kept as data"] == 1


def test_a_second_result_of_one_call_becomes_data() -> None:
    transcript = only(
        parsed(
            FORMAT,
            answered("a", "m", tool_use("t")),
            said("u1", [tool_result("t", "first")]),
            said("u2", [tool_result("t", "again")]),
        )
    )
    assert tools(transcript)[0].output == "first"
    assert "again" in data(messages(transcript)[0], "claude_code:tool_result")[0]


def test_a_call_id_that_comes_twice_gives_its_result_to_the_newer_call() -> None:
    calls = [answered("a1", "m1", tool_use("t")), answered("a2", "m2", tool_use("t"))]
    parts = tools(only(parsed(FORMAT, *calls, said("u", [tool_result("t", "out")]))))
    assert [part.output for part in parts] == [None, "out"]


def test_a_call_without_a_result_ends_as_an_error() -> None:
    result = parsed(FORMAT, answered("a", "m", tool_use("t")))
    part = tools(only(result))[0]
    assert (part.state, part.error, part.completed_at) == (ToolState.ERROR, "no result in the transcript", None)
    assert notes(result)["tool calls have no result in the transcript and are stored as errors"] == 1


def test_a_record_with_a_result_and_words_completes_the_call_and_starts_a_turn() -> None:
    transcript = only(
        parsed(FORMAT, said("u1", "go"), answered("a", "m", tool_use("t")), said("u2", [tool_result("t"), text("and")]))
    )
    assert tools(transcript)[0].state is ToolState.COMPLETED
    assert [turn.external_id for turn in transcript.turns] == ["u1", "u2"]
    assert spoken(transcript)[-1] == ("user", ["and"])


def test_tool_use_result_is_kept_only_where_it_says_more() -> None:
    result = parsed(
        FORMAT,
        answered("a", "m", tool_use("t1"), tool_use("t2"), tool_use("t3", path="x")),
        said("u1", [tool_result("t1", "out")], toolUseResult={"stdout": "out\n", "stderr": "", "interrupted": False}),
        said("u2", [tool_result("t2", "out")], toolUseResult={"stdout": "out", "durationMs": 230}),
        said("u3", [tool_result("t3", "ok")], toolUseResult={"path": "x", "originalFile": "what was there"}),
    )
    kept = [json.loads(part) for part in data(messages(only(result))[0], "claude_code:toolUseResult")]
    assert [each["tool_use_id"] for each in kept] == ["t2", "t3"]
    assert kept[1]["toolUseResult"]["originalFile"] == "what was there"
    assert notes(result)["toolUseResult fields that only repeat the result are not stored again"] == 1


@pytest.mark.parametrize(
    "kind", ["queue-operation", "file-history-snapshot", "system", "progress", "summary", "never seen before"]
)
def test_any_other_record_is_kept_word_for_word_on_the_message_before_it(kind: str) -> None:
    line = json.dumps({"type": kind, "uuid": "x1", "content": "kept"}, indent=None, separators=(" , ", " : "))
    transcript = only(parsed(FORMAT, said("u1", "one"), said("u2", "two"), line, said("u3", "three")))
    assert data(messages(transcript)[1], f"claude_code:{kind.replace(' ', '_')}") == [line]
    assert labels(messages(transcript)[0]) == ["claude_code:records"]


def test_what_stands_before_the_first_message_is_put_on_the_first_message() -> None:
    transcript = only(
        parsed(FORMAT, {"type": "progress", "uuid": "p"}, {"type": "file-history-snapshot"}, said("u", "go"))
    )
    assert labels(messages(transcript)[0])[:2] == ["claude_code:progress", "claude_code:file-history-snapshot"]
    assert texts(messages(transcript)[0]) == ["go"]


def test_equal_progress_records_are_all_kept() -> None:
    progress = {"type": "progress", "uuid": "p", "data": {"type": "hook_progress"}}
    transcript = only(parsed(FORMAT, said("u", "go"), progress, progress, progress))
    assert len(data(messages(transcript)[0], "claude_code:progress")) == 3


def test_a_file_without_any_message_is_kept_as_one_system_message_of_data() -> None:
    transcript = only(parsed(FORMAT, {"type": "summary", "summary": "A title", "leafUuid": "x"}))
    assert transcript.title == "A title"
    assert [(message.role, labels(message)) for message in messages(transcript)] == [
        ("system", ["claude_code:summary"])
    ]


def test_a_compaction_summary_is_marked_and_starts_a_turn() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go"),
            answered("a1", "m1", text("yes")),
            {"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": {"preTokens": 167094}},
            said("u2", "This session is continued", isCompactSummary=True),
            answered("a2", "m2", text("on")),
        )
    )
    summary = messages(transcript)[2]
    assert summary.is_summary
    assert not any(message.is_summary for message in messages(transcript) if message is not summary)
    assert summary.parts[0] == CompactionMarkerPart(
        summary_id="u2", compacted_message_count=2, compacted_token_count=167094
    )
    assert transcript.turns[1].external_id == "u2"
    assert labels(messages(transcript)[1])[0] == "claude_code:system"


def test_titles_come_from_the_user_then_the_model_then_summaries_then_the_first_words() -> None:
    words = [said("u1", "<command-name>/x</command-name>"), said("u2", "make it work")]
    summary = {"type": "summary", "summary": "a summary", "leafUuid": "u1"}
    custom, by_model = {"type": "custom-title", "customTitle": "mine"}, {"type": "ai-title", "aiTitle": "theirs"}
    assert only(parsed(FORMAT, *words)).title == "make it work"
    assert only(parsed(FORMAT, *words, summary)).title == "a summary"
    assert only(parsed(FORMAT, by_model, *words, summary)).title == "theirs"
    assert only(parsed(FORMAT, custom, *words, by_model)).title == "mine"


def test_what_the_source_says_about_the_session_becomes_labels() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go", 7, cwd="/home/x", gitBranch="main", version="2.1.38"),
            {"type": "progress", "uuid": "p", "timestamp": "2026-02-10T21:00:02Z"},
            answered("a1", "m1", text("yes"), model="<synthetic>"),
        )
    )
    assert transcript.external_id == "S"
    assert transcript.labels == {"session_id": "S", "cwd": "/home/x", "git_branch": "main", "version": "2.1.38"}
    assert transcript.started_at == second(0)
    assert transcript.model == ""
    assert messages(transcript)[1].model == "<synthetic>"


def test_a_resumed_session_is_named_by_its_file() -> None:
    records = [said("u1", "old", sessionId="old"), said("u2", "new", sessionId="new")]
    assert only(parsed(FORMAT, *records, name="/x/new.jsonl.gz")).external_id == "new"
    assert only(parsed(FORMAT, *records, name="upload.jsonl")).external_id == "old"


def test_an_unreadable_line_is_kept_on_the_message_before_it() -> None:
    result = parsed(FORMAT, said("u1", "go"), '{"type": "user", "mess', "", "[1]", said("u2", "on"))
    kept = data(messages(only(result))[0], "claude_code:unreadable")
    assert kept == ['{"type": "user", "mess', "[1]"]
    assert result.report.read["unreadable"] == 2
    assert notes(result)["unreadable lines are kept as text: it is not JSON"] == 1
    assert notes(result)["unreadable lines are kept as text: it is not a JSON object"] == 1


def test_records_with_fields_of_wrong_types_are_kept_whole() -> None:
    strange = {"type": "assistant", "uuid": "a", "message": {"content": {"no": "list"}}}
    transcript = only(parsed(FORMAT, said("u", "go"), strange, {"type": "user", "uuid": "b", "message": 7}))
    assert labels(messages(transcript)[0])[:2] == ["claude_code:assistant", "claude_code:user"]


def test_numbers_written_as_text_and_nonsense_numbers() -> None:
    usage = {"input_tokens": "12", "output_tokens": -4, "cache_read_input_tokens": True}
    message = messages(only(parsed(FORMAT, answered("a", "m", text("x"), usage=usage))))[0]
    assert message.usage == Usage(input_tokens=12, output_tokens=0, source=Source.IMPORTED)


def test_each_source_record_leaves_its_ids_and_settings_behind() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go", permissionMode="plan"),
            answered("a1", "m1", tool_use("t1")),
            said("u2", [tool_result("t1", "the output")]),
        )
    )
    first, second_message = messages(transcript)
    assert json.loads(data(first, "claude_code:records")[0])[0]["permissionMode"] == "plan"
    records = json.loads(data(second_message, "claude_code:records")[0])
    assert [record["uuid"] for record in records] == ["a1", "u2"]
    assert "the output" not in data(second_message, "claude_code:records")[0]


def test_only_a_file_without_one_record_is_refused_and_told_why() -> None:
    with pytest.raises(InvalidRequest, match=r"'x.jsonl' holds no claude_code transcript: .*not JSON.*locomo"):
        parsed(FORMAT, "garbage", "more", name="x.jsonl")
    with pytest.raises(InvalidRequest, match="it is empty"):
        parsed(FORMAT, "", "  ")
    with pytest.raises(InvalidRequest, match="neither a uuid nor a sessionId"):
        parsed(FORMAT, {"role": "user", "content": "hello"})


def test_a_text_block_that_is_no_text_is_data() -> None:
    message = messages(only(parsed(FORMAT, said("u", [{"type": "text", "text": 5}, "bare", text("x")]))))[0]
    assert [part for part in message.parts if isinstance(part, TextPart)] == [TextPart(text="x")]
    assert data(message, "claude_code:text") == ['{"type":"text","text":5}']
    assert data(message, "claude_code:block") == ['"bare"']


def test_pictures_and_documents_of_the_user_are_files() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}, "cache_control": {"x": 1}}
    paper = {
        "type": "document",
        "title": "Tides",
        "source": {"type": "text", "media_type": "text/plain", "data": "high"},
    }
    broken = {"type": "image", "source": {"type": "base64", "data": "no base64!"}}
    [message] = messages(only(parsed(FORMAT, said("u", [text("See"), image, linked, paper, broken]))))
    shown = [part for part in message.parts if isinstance(part, MediaPart)]
    assert [(type(part).__name__, part.name, part.media_type, part.size) for part in shown] == [
        ("ImagePart", "", "image/png", 3),
        ("ImagePart", "", "", 0),
        ("DocumentPart", "Tides", "text/plain", 4),
    ]
    assert shown[1].source == "https://a.example/b.png"
    assert [file.data for file in message.files] == [b"img", b"high"]
    assert json.loads(data(message, "claude_code:image")[0]) == broken
    kept = json.loads(data(message, "claude_code:records")[0])[0]["message"]["content"]
    assert kept[2]["cache_control"] == {"x": 1}
    assert kept[1]["source"] == {"type": "base64", "media_type": "image/png"}


def test_what_the_provider_ran_is_marked_and_kept_word_for_word() -> None:
    found = [{"type": "web_search_result", "url": "https://a.example", "encrypted_content": "gAAA"}]
    cited = {
        **{"type": "web_search_result_location", "url": "https://a.example", "title": "Tides"},
        **{"encrypted_index": "Eo8B", "cited_text": "fourteen"},
    }
    page = {
        "type": "page_location",
        "cited_text": "x",
        "document_title": "Log",
        "start_page_number": 3,
        "end_page_number": 4,
    }
    blocks = [
        {"type": "redacted_thinking", "data": "ZZZ"},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "tide"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": found},
        {"type": "text", "text": "Fourteen metres.", "citations": [cited, page]},
    ]
    result = parsed(FORMAT, said("u", "How high?"), answered("a", "m", *blocks))
    opaque, ran, words, first, second, _ = messages(only(result))[1].parts
    assert opaque == ProviderPart(provider="anthropic", kind="redacted_thinking", data=dump_json(blocks[0]))
    assert isinstance(ran, ProviderToolPart)
    assert (ran.tool_name, ran.input, json.loads(ran.output or "")) == ("web_search", '{"query":"tide"}', found)
    assert json.loads(ran.data) == {"call": {"type": "server_tool_use"}, "result": {"type": "web_search_tool_result"}}
    assert words == TextPart(text="Fourteen metres.")
    assert first == CitationPart(
        text="fourteen", title="Tides", url="https://a.example", provider="anthropic", data=dump_json(cited)
    )
    assert (second.title, second.place) == ("Log", "pages 3-4")
    assert not notes(result).get("tool calls have no result in the transcript and are stored as errors")


def test_a_providers_call_without_a_result_waits_for_nothing() -> None:
    block = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    ran = messages(only(parsed(FORMAT, said("u", "go"), answered("a", "m", block))))[1].parts[0]
    assert isinstance(ran, ProviderToolPart)
    assert (ran.output, ran.error) == (None, None)

"""How Claude Code's sub-agents become children of the session that launched them."""

from __future__ import annotations

import json

from mnesis_core.transcripts.values import NamedSource
from tests.support.material.transcript_lines import (
    answered,
    data,
    labels,
    messages,
    only,
    parsed,
    said,
    spoken,
    text,
    tool_result,
    tool_use,
    tools,
)

FORMAT = "claude_code"


def launched(call_id: str = "t1", prompt: str = "look it up") -> dict[str, object]:
    return answered("a1", "m1", tool_use(call_id, "Task", prompt=prompt, description="Research"))


def side(record: dict[str, object], agent_id: str = "abc", **fields: object) -> dict[str, object]:
    return {**record, "isSidechain": True, "agentId": agent_id, **fields}


def test_side_chain_records_become_a_child_linked_to_the_call_that_the_result_names() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go"),
            launched(),
            side(said("s1", "look it up")),
            side(answered("s2", "ms", text("found"))),
            said("u2", [tool_result("t1", "found")], toolUseResult={"agentId": "abc", "totalTokens": 9}),
            answered("a2", "m2", text("it is so")),
        )
    )
    assert spoken(transcript) == [("user", ["go"]), ("assistant", []), ("assistant", ["it is so"])]
    (child,) = transcript.children
    assert spoken(child) == [("user", ["look it up"]), ("assistant", ["found"])]
    assert (child.external_id, child.title, child.labels["agent_id"]) == ("S/abc", "Research", "abc")
    assert child.parent is not None
    assert (child.parent.kind, child.parent.transcript_id) == ("sub_agent", "S")
    assert (child.parent.message_id, child.parent.tool_call_id) == ("a1", "t1")


def test_old_side_chains_without_an_agents_name_follow_their_parents_and_find_the_call_by_its_prompt() -> None:
    two_calls = answered(
        "a1", "m1", tool_use("t1", "Task", prompt="one thing"), tool_use("t2", "Task", prompt="other thing")
    )
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go"),
            two_calls,
            said("s1", "other thing", isSidechain=True),
            said("r1", "one thing", isSidechain=True),
            {**answered("s2", "ms", text("other found")), "isSidechain": True, "parentUuid": "s1"},
            {**answered("r2", "mr", text("one found")), "isSidechain": True, "parentUuid": "r1"},
        )
    )
    found = {child.parent.tool_call_id: spoken(child)[1][1] for child in transcript.children if child.parent}
    assert found == {"t1": ["one found"], "t2": ["other found"]}


def progress_of(agent_id: str, inner: dict[str, object], uuid: str) -> dict[str, object]:
    told = {"type": "agent_progress", "agentId": agent_id, "prompt": "look it up", "message": inner}
    return {"type": "progress", "uuid": uuid, "sessionId": "S", "parentToolUseID": "t1", "data": told}


def test_agent_progress_records_are_kept_and_told_again_as_a_child() -> None:
    result = parsed(
        FORMAT,
        said("u1", "go"),
        launched(prompt="a longer prompt than the agent tells"),
        progress_of("abc", said("i1", [text("look it up")]), "p1"),
        progress_of("abc", answered("i2", "mi", tool_use("t9", "Read")), "p2"),
        progress_of("abc", said("i3", [tool_result("t9", "content")]), "p3"),
    )
    transcript = only(result)
    assert len(data(messages(transcript)[1], "claude_code:progress")) == 3
    (child,) = transcript.children
    assert [part.output for part in tools(child)] == ["content"]
    assert child.parent is not None
    assert child.parent.tool_call_id == "t1"
    assert result.report.read["progress"] == 3


def test_an_agents_own_file_replaces_what_progress_records_tell() -> None:
    lines = [json.dumps(side(said("i1", "look it up"))), json.dumps(side(answered("i2", "mi", text("all of it"))))]
    result = parsed(
        FORMAT,
        said("u1", "go"),
        launched(),
        progress_of("abc", said("i1", [text("look it up")]), "p1"),
        companions=[NamedSource(name="agent-abc.jsonl", source=lines)],
    )
    (child,) = only(result).children
    assert spoken(child)[1] == ("assistant", ["all of it"])
    assert child.parent is not None
    assert child.parent.tool_call_id == "t1"


def test_a_compaction_agents_file_hangs_on_the_message_it_read_last() -> None:
    lines = [
        json.dumps(side(said("c1", "reminder", isMeta=True, parentUuid="u1"), "acompact-1")),
        json.dumps(side(said("c2", "summarise", parentUuid="a1"), "acompact-1")),
        json.dumps(side(answered("c3", "mc", text("summary")), "acompact-1", parentUuid="c2")),
    ]
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go"),
            answered("a1", "m1", text("yes")),
            said("u2", "the summary", isCompactSummary=True),
            companions=[NamedSource(name="agent-acompact-1.jsonl", source=lines)],
        )
    )
    (child,) = transcript.children
    assert child.parent is not None
    assert (child.parent.kind, child.parent.message_id, child.parent.tool_call_id) == ("compaction", "a1", "")
    assert [len(turn.messages) for turn in child.turns] == [3]


def test_an_agent_launched_by_an_agent_names_it_and_comes_after_it() -> None:
    transcript = only(
        parsed(
            FORMAT,
            said("u1", "go"),
            side(said("d1", "deeper"), "inner"),
            launched(),
            side(said("s1", "look it up"), "outer"),
            side(answered("s2", "ms", tool_use("t5", "Agent", prompt="deeper")), "outer"),
        )
    )
    assert [child.external_id for child in transcript.children] == ["S/outer", "S/inner"]
    inner = transcript.children[1].parent
    assert inner is not None
    assert (inner.transcript_id, inner.message_id, inner.tool_call_id) == ("S/outer", "s2", "t5")


def test_agents_with_the_same_prompt_hang_on_different_calls() -> None:
    calls = [tool_use(f"t{number}", "Task", prompt="look it up") for number in range(3)]
    chains = [said(f"s{number}", "look it up", isSidechain=True) for number in range(3)]
    transcript = only(parsed(FORMAT, answered("a1", "m1", *calls), *chains))
    assert [child.parent.tool_call_id for child in transcript.children if child.parent] == ["t0", "t1", "t2"]


def test_a_circle_of_agents_is_cut_and_owners_still_come_first() -> None:
    def agent(name: str, launches: str) -> list[dict[str, object]]:
        call = tool_use(f"t-{name}", "Task", prompt=f"be {launches}")
        return [side(said(f"{name}1", f"be {name}"), name), side(answered(f"{name}2", name, call), name)]

    transcript = only(parsed(FORMAT, said("u1", "go"), *agent("x", "z"), *agent("y", "x"), *agent("z", "y")))
    found = [(child.external_id, child.parent.transcript_id) for child in transcript.children if child.parent]
    assert found == [("S/x", "S"), ("S/z", "S/x"), ("S/y", "S/z")]


def test_an_agents_file_alone_is_a_transcript_of_its_own() -> None:
    transcript = only(
        parsed(FORMAT, {"type": "file-history-snapshot"}, side(said("i1", "look it up")), name="agent-abc.jsonl")
    )
    assert (transcript.external_id, transcript.parent, transcript.children) == ("S/abc", None, ())
    assert "claude_code:file-history-snapshot" in labels(messages(transcript)[0])


def test_a_file_of_another_session_becomes_a_transcript_of_its_own_and_an_empty_one_is_skipped() -> None:
    stranger = [json.dumps(side(said("i1", "look it up", sessionId="T")))]
    result = parsed(
        FORMAT,
        said("u1", "go"),
        companions=[
            NamedSource(name="agent-abc.jsonl", source=stranger),
            NamedSource(name="agent-none.jsonl", source=[]),
        ],
    )
    assert [(each.external_id, each.parent) for each in result.transcripts] == [("S", None), ("T/abc", None)]
    assert [(skip.kind, skip.reason) for skip in result.report.skipped] == [("file", "it is empty")]

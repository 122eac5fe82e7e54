"""The memory tools: whose record they see, and that no id which a model is shown leads nowhere."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from typing import Any

import pytest
from django.contrib.auth.models import User

from agents_app.tools.memory.grepping import LARGEST_PAGE
from agents_app.tools.registry import ToolContext
from agents_app.turns import lifecycle
from agents_app.turns.branches import choose_branch
from compaction_app import store as compaction_store
from compaction_app.compact import compact_now
from compaction_app.context.state import build_context
from compaction_app.queries import list_summaries
from files_app.contents import put_content
from files_app.store import finish_exploration, store_file_reference
from mnesis_core.errors import FileNotText, InvalidRequest, MnesisError, NotFound, PermissionDenied
from mnesis_core.messages import DataPart, FileRefPart, Part, PatchPart, TextPart, ToolPart, ToolState
from mnesis_core.providers import demo_replies
from mnesis_core.records import SUB_AGENT, SessionRecord, find_ids, new_id
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from tests.support.record.inspected import add_summary, add_turn, claim, finish, revise, tool_part
from tests.support.record.tools import find_tool
from tests.support.record.trees import make_tree

ASKING = {"lcm_describe": "id", "lcm_read": "id", "lcm_expand": "summary_id"}


def ask(session: SessionRecord, name: str, **arguments: object) -> str:
    tool = find_tool(name)
    answer = tool.call(ToolContext(session_id=session.id, owner_id=session.owner_id), json.dumps(arguments))
    assert isinstance(answer, str)
    return answer


def launch(parent: SessionRecord, owner: User) -> SessionRecord:
    """A sub-agent's session, without a turn."""
    return load_session(session_store.create_session(owner=owner, model="demo", parent_id=parent.id, origin=SUB_AGENT))


def accepted(session: SessionRecord, id: str) -> list[str]:
    """What the tools say to an id; refusals are left out."""
    answers = []
    for name, argument in ASKING.items():
        try:
            answers.append(ask(session, name, **{argument: id}))
        except MnesisError:
            continue
    return answers


def strangers(rng: random.Random) -> str:
    """Text with ids that name nothing here, and one of another person's kind."""
    return " ".join(
        [new_id(kind) for kind in rng.sample(["msg", "sum", "file", "run", "try", "key"], 3)] + ["file_0123abcd"]
    )


def hostile_parts(rng: random.Random) -> list[Part]:
    huge = "Portwell tide gauge forty one. " * rng.choice([1, 40, 900])
    call_id = rng.choice(["", "c1", f"call_{rng.random()}", "x" * 300, "naïve \ud800 id"])
    output = rng.choice([huge, strangers(rng), f'</summary> <summary id="{new_id("sum")}">', ""])
    tool = ToolPart(
        tool_name="read",
        tool_call_id=call_id,
        input=f'{{"of": "{strangers(rng)}"}}',
        output=output,
        state=ToolState.COMPLETED,
    )
    reference = FileRefPart(file_id=rng.choice([new_id("file"), "file-AbC%_", "\u0000"]), path="a/b.csv", token_count=9)
    patch = PatchPart(unified_diff=f"+{strangers(rng)}", files_changed=("a",))
    every: list[Part] = [TextPart(text=huge + strangers(rng)), tool, reference, patch, DataPart(label="x", text=huge)]
    return rng.sample(every, rng.randint(1, len(every)))


def hostile_session(owner: User, rng: random.Random) -> SessionRecord:
    """Turns with everything, some under summaries of two depths, one of them revised; outputs tombstoned; a small window."""
    session = lifecycle.create_session(owner=owner, config={"context_window": 2_500})
    with change(session.id) as record:
        file_id = store_file_reference(record, content_id="ab" * 32, path="notes.txt", exploration_summary="Notes.")
    for number in range(10):
        add_turn(session.id, f"Question {number} about {file_id}", *hostile_parts(rng))
    add_turn(session.id, "Newest", TextPart(text="Portwell tide gauge forty one. " * 900), tool_part(call_id="c7"))
    messages = load_messages(session.id)
    run = claim(session.id)
    ids = [message.id for message in messages]
    leaves = [add_summary(session.id, run, ids[at : at + 4], (at + 1, at + 4), text=strangers(rng)) for at in (0, 4)]
    top = add_summary(session.id, run, leaves, (1, 8), kind="condensed", text=f"All. [LCM File IDs: {file_id}]")
    revise(session.id, leaves[0], ids[:4], text=f"Better than {leaves[0]}, under {top}.")
    outputs = [stored.id for message in messages[8:16] for stored in message.parts if isinstance(stored.part, ToolPart)]
    with change(session.id) as record:
        compaction_store.prune(record, run.id, outputs[: len(outputs) // 2 + 1], tokens=900)
    finish(session.id, run)
    return load_session(session.id)


def shown_ids(texts: Iterable[str]) -> set[str]:
    return {id for text in texts for id in find_ids(text)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 7])
def test_every_id_in_a_context_and_in_what_the_tools_say_of_it_is_accepted(alice, seed):
    session = hostile_session(alice, random.Random(seed))
    context = json.dumps(build_context(session.id).payload, ensure_ascii=False)
    call_ids = re.findall(r'"tool_call_id": "([^"]+)"', context)
    assert "left out here" in context
    waiting, known = shown_ids([context]) | set(call_ids), set[str]()
    while waiting and len(known) < 100:
        id = waiting.pop()
        known.add(id)
        answers = accepted(session, id)
        assert answers, id
        assert all(len(answer) < 60_000 for answer in answers)
        waiting |= shown_ids(answers) - known
    kinds = {id.partition("_")[0] for id in known}
    assert {"msg", "part", "sum", "turn", "sess", "file"} <= kinds


def test_a_tombstoned_output_is_read_by_its_part_and_by_the_id_that_the_model_sees_of_the_call(session):
    add_turn(session.id, "Read it", tool_part("the tide table: 03:10 high", call_id="toolu_17"))
    add_turn(session.id, "Thanks")
    part = load_messages(session.id)[1].parts[0]
    run = claim(session.id)
    with change(session.id) as record:
        compaction_store.prune(record, run.id, [part.id], tokens=9)
    assert "03:10" not in json.dumps(build_context(session.id).payload)
    assert "03:10 high" in ask(session, "lcm_read", id=part.id)
    assert "03:10 high" in ask(session, "lcm_read", id="toolu_17")
    add_turn(session.id, "Again", tool_part("what came later", call_id="toolu_17"))
    assert "03:10 high" in ask(session, "lcm_read", id="toolu_17")  # the later one stands in the context
    assert "out of context since" in ask(session, "lcm_describe", id=part.id)
    assert "compaction" in ask(session, "lcm_describe", id=f"what is {run.id}?")


def test_hits_stand_under_the_summary_that_covers_them_and_a_summary_narrows_the_search(session):
    for number in range(3):
        add_turn(session.id, f"Marigold number {number}")
    ids = [message.id for message in load_messages(session.id)]
    leaf = add_summary(session.id, claim(session.id), ids[:2], (1, 2), text="A marigold.")
    lines = ask(session, "lcm_grep", pattern="marigold", mode="text").split("\n")
    assert lines[0] == "4 hits in 6 messages searched."
    groups = [line for line in lines if not line.startswith("- ")][1:]
    assert sorted(groups) == sorted([f"Summarised by {leaf}:", "Not summarised:", "Summaries and files:"])
    assert lines[lines.index(f"Summarised by {leaf}:") + 1].startswith("- #1 (user, ")
    inside = ask(session, "lcm_grep", pattern="number", mode="text", summary_id=leaf)
    assert inside.startswith("1 hits in 2 messages searched.")


@pytest.mark.parametrize("mode", ["ranked", "text", "regex"])
def test_a_search_goes_on_from_its_cursor_until_everything_was_seen_once(session, alice, mode):
    for number in range(7):
        add_turn(session.id, f"Marigold number {number}")
    child = launch(session, alice)
    add_turn(child.id, "Marigold of the child")
    seen: list[str] = []
    cursor = ""
    for _ in range(9):
        page = ask(child, "lcm_grep", pattern="Marigold", mode=mode, around=0, limit=3, cursor=cursor)
        seen += re.findall(r"(?:^> |^- )#\d+ .*: (Marigold.*)", page, re.MULTILINE)
        if "go on with cursor=" not in page:
            break
        cursor = page.split("go on with cursor=")[1].split("\n")[0]
    assert len(seen) == len(set(seen)) == 8
    assert seen[0] == "Marigold of the child"  # its own come first
    with pytest.raises(InvalidRequest, match="cursor"):
        ask(child, "lcm_grep", pattern="marigold", cursor="9:")
    assert ask(child, "lcm_grep", pattern="marigold", limit=10**9).count("\n- ") <= LARGEST_PAGE


def test_a_sub_agent_sees_its_ancestors_and_its_siblings_and_nobody_sees_another_persons(session, alice, bob):
    [message, _] = add_turn(session.id, "The gauge reads forty one")
    child = launch(session, alice)
    sibling = launch(session, alice)
    [theirs, _] = add_turn(sibling.id, "I found the buoy")
    assert "forty one" in ask(child, "lcm_read", id=message)
    assert "forty one" in ask(child, "lcm_grep", pattern="gauge")
    assert "I found the buoy" in ask(child, "lcm_read", id=theirs)
    assert "I found the buoy" in ask(session, "lcm_read", id=theirs)
    assert ask(session, "lcm_grep", pattern="buoy").startswith("0 hits")
    assert child.id in ask(session, "lcm_describe", id=child.id)
    stranger = lifecycle.create_session(owner=bob)
    other = lifecycle.create_session(owner=alice)
    for outsider in (stranger, other):
        for id in (message, theirs, session.id, child.id):
            with pytest.raises(NotFound):
                ask(outsider, "lcm_read", id=id)
            with pytest.raises(NotFound):
                ask(outsider, "lcm_describe", id=id)


def test_a_fork_finds_what_was_copied_once(session, alice):
    [message, _] = add_turn(session.id, "The gauge reads forty one")
    fork = lifecycle.fork_session(session.id, owner=alice, at_message_id=message)
    assert ask(fork, "lcm_grep", pattern="gauge").startswith("1 hits in 1 messages searched.")
    assert "forty one" in ask(fork, "lcm_read", id=message)  # the original's id, as a copied text may name it


def test_only_a_sub_agent_expands_and_only_within_its_allowance(session, alice):
    for number in range(20):
        add_turn(session.id, f"Number {number}: {'the tide gauge at Portwell ' * 90}")
    ids = [message.id for message in load_messages(session.id)]
    run = claim(session.id)
    leaf = add_summary(session.id, run, ids[:40], (1, 40))
    top = add_summary(session.id, run, [leaf], (1, 40), kind="condensed")
    with pytest.raises(PermissionDenied, match="Delegate with task"):
        ask(session, "lcm_expand", summary_id=top)
    child = launch(session, alice)
    assert f"leaf summary {leaf}" in ask(child, "lcm_expand", summary_id=top)
    first = ask(child, "lcm_expand", summary_id=leaf)
    assert "Number 0:" in first
    cursor = int(first.split("[go on with cursor=")[1].rstrip("]"))
    assert f"Number {cursor // 2}:" in ask(child, "lcm_expand", summary_id=leaf, cursor=cursor)
    with pytest.raises(InvalidRequest, match="no summary"):
        ask(child, "lcm_expand", summary_id=ids[0])
    read = ToolPart(tool_name="lcm_expand", tool_call_id="c", output="gauge " * 40_000, state=ToolState.COMPLETED)
    add_turn(child.id, "Expand", read)
    with pytest.raises(InvalidRequest, match="allowance of 40,000 tokens"):
        ask(child, "lcm_expand", summary_id=leaf)


def test_an_id_that_names_nothing_leads_to_where_it_was_said_but_not_to_who_asked(session):
    nothing = new_id("sum")
    asked = ToolPart(
        tool_name="lcm_read", tool_call_id="c", input=f'{{"id": "{nothing}"}}', error="no", state=ToolState.ERROR
    )
    add_turn(session.id, "Look", asked)
    with pytest.raises(NotFound):
        ask(session, "lcm_describe", id=nothing)
    add_turn(session.id, f"It was called {nothing}")
    assert "- #3 (user, " in ask(session, "lcm_describe", id=nothing)
    for hostile in ("", "   ", "%", "\u0000", "\ud800", "x" * 9_000, "msg_" + "é" * 26):
        with pytest.raises(MnesisError):
            ask(session, "lcm_read", id=hostile)


def test_a_file_is_read_range_by_range_or_told_of_where_its_content_is_not_kept(session):
    content_id = put_content("tide é\n".encode() * 3_000)
    with change(session.id) as record:
        kept = store_file_reference(record, content_id=content_id, path="tides.txt")
        known = store_file_reference(
            record, content_id="cd" * 32, path="gone.txt", exploration_summary="Three columns."
        )
    first = ask(session, "lcm_read", id=kept, limit=16)
    assert first == "tide é\ntide é\n\n[bytes 0 to 16 of 24000; read on with offset=16]"
    assert ask(session, "lcm_read", id=kept, offset=23_992).endswith("[bytes 23992 to 24000 of 24000]")
    assert ask(session, "lcm_read", id=kept, offset=10**12).endswith("[bytes 24000 to 24000 of 24000]")
    assert "Three columns." in ask(session, "lcm_read", id=known)
    assert "tides.txt" in ask(session, "lcm_describe", id=kept)


def keep(session: SessionRecord, data: bytes, path: str, **values: Any) -> str:
    with change(session.id) as record:
        return store_file_reference(record, content_id=put_content(data), path=path, size=len(data), **values)


def test_a_file_is_read_by_its_lines_which_say_how_many_there_are(session):
    file_id = keep(session, b"".join(b"tide %d\n" % number for number in range(1, 5_001)), "tides.txt")
    page = ask(session, "lcm_read", id=file_id, first_line=4_000, limit=40).split("\n")
    assert page == ["4000: tide 4000", "4001: tide 4001", "[lines 4000 to 4001 of 5000; read on with first_line=4002]"]
    assert ask(session, "lcm_read", id=file_id, first_line=5_000).endswith("tide 5000\n[lines 5000 to 5000 of 5000]")
    assert "the file has 5000 lines" in ask(session, "lcm_read", id=file_id, first_line=5_001)
    [message, _] = add_turn(session.id, "Words")
    with pytest.raises(InvalidRequest):
        ask(session, "lcm_read", id=message, first_line=1)
    with pytest.raises(FileNotText):
        ask(session, "lcm_read", id=keep(session, b"\x00\x01" * 99, "a.bin"), first_line=1)
    long = keep(session, b"x" * 9_000 + b"\nend", "long.txt")
    assert "cut; lcm_read with offset=0" in ask(session, "lcm_read", id=long, first_line=1, limit=1)


def test_the_contents_of_files_are_searched_with_line_numbers_under_each_file(session):
    log = keep(session, b"calm\nstorm in the north\ncalm\nStorm over\n", "logs/a.log")
    note = keep(session, "the storm\n".encode("utf-16"), "note.txt")
    keep(session, b"\x00storm\x01" * 9, "a.bin")
    with change(session.id) as record:
        store_file_reference(record, content_id="cd" * 32, path="gone.txt")
    add_turn(session.id, "The storm came")
    found = ask(session, "lcm_grep", pattern="storm", scope="files").split("\n")
    assert found == [
        "3 lines found; 2 files searched to their end. 2 files are no text or not kept here.",
        f"{note} note.txt:",
        "- line 1 (byte 10): the storm",
        f"{log} logs/a.log:",
        "- line 2 (byte 5): storm in the north",
        "- line 4 (byte 29): Storm over",
    ]
    one = ask(session, "lcm_grep", pattern="^calm$", mode="regex", file_id=log)
    assert one.startswith("2 lines found; 1 files searched")
    assert "The storm came" in ask(session, "lcm_grep", pattern="storm")
    with pytest.raises(InvalidRequest):
        ask(session, "lcm_grep", pattern="(", mode="regex", scope="files")
    for cursor in ("x", "file_x:", f"{new_id('file')}:1.0.0", f"{log}:1.x"):
        with pytest.raises(InvalidRequest):
            ask(session, "lcm_grep", pattern="storm", scope="files", cursor=cursor)


def test_a_search_in_files_goes_on_from_its_cursor_until_every_line_was_seen_once(session, alice):
    child = launch(session, alice)
    files = [keep(owner, b"calm\nstorm\n" * 7, f"{n}.log") for n, owner in enumerate([session, child, session, child])]
    cursor, seen, now = "", list[str](), ""
    for _ in range(20):
        first, *lines = ask(child, "lcm_grep", pattern="storm", scope="files", limit=3, cursor=cursor).split("\n")
        for line in lines:
            now = line.split()[0] if line.startswith("file_") else now
            seen += [f"{now} {line.split()[2]}"] if line.startswith("- line") else []
        cursor = first.partition("cursor=")[2]
        if not cursor:
            break
    assert seen == [f"{files[at]} {number}" for at in (3, 1, 2, 0) for number in range(2, 15, 2)]


def test_only_the_files_of_a_session_and_those_above_it_are_searched(session, alice, bob):
    child, other = launch(session, alice), lifecycle.create_session(owner=bob)
    mine, theirs = keep(child, b"a secret", "mine.txt"), keep(other, b"a secret", "theirs.txt")
    assert mine in ask(child, "lcm_grep", pattern="secret", scope="files")
    assert ask(session, "lcm_grep", pattern="secret", scope="files").startswith("0 lines found; 0 files")
    assert mine in ask(session, "lcm_grep", pattern="secret", file_id=mine)  # what it launched may be named
    with pytest.raises(NotFound):
        ask(session, "lcm_grep", pattern="secret", file_id=theirs)
    with pytest.raises(InvalidRequest):
        ask(session, "lcm_grep", pattern="secret", scope="files", cursor=f"{theirs}:1.0.0")
    with pytest.raises(InvalidRequest):
        ask(session, "lcm_grep", pattern="secret", scope="files", cursor=f"{mine}:1.0.0")


def test_a_file_is_described_with_its_lines_versions_exploration_and_where_it_is_spoken_of(session):
    old = keep(session, b"one\ntwo\n", "plan.txt", file_type="text", token_count=2)
    keep(session, b"one\ntwo\n", "plan.txt", file_type="text", token_count=3)  # said otherwise, the same content
    new = keep(session, b"one\ntwo\nthree", "plan.txt", exploration_summary=None)
    [asked, _] = add_turn(session.id, f"Look at {new}")
    with change(session.id) as record:
        finish_exploration(
            record,
            new,
            summary="Three steps.",
            exploration={"explorer": "text-1", "covered": "all of it", "problem": ""},
        )
    told = ask(session, "lcm_describe", id=new)
    for words in (
        f"version: 2 of 2 (earlier: {old})",
        "13 bytes",
        "lines: 3",
        "by text-1, covered all of it",
        f"spoken of in: {asked}",
        "Three steps.",
    ):
        assert words in told
    assert f"version: 1 of 2 (later: {new})" in ask(session, "lcm_describe", id=old)
    assert "lines: none" in ask(session, "lcm_describe", id=keep(session, b"\x00" * 9, "a.bin"))
    only = ask(session, "lcm_describe", id=keep(session, b"x", "only.txt"))
    assert ("the only one at this path" in only, "spoken of in: none" in only) == (True, True)
    assert f"version 1 of 2 (later: {new})" in ask(session, "lcm_grep", pattern="two", file_id=old)


def test_the_demo_model_understands_what_is_found(session):
    add_turn(session.id, "My dentist is Dr Weber.")
    add_turn(session.id, "I like tea.")
    found = ask(session, "lcm_grep", pattern="dentist")
    said = demo_replies.from_tool_results(
        "Who is my dentist?",
        [
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "lcm_grep", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": found},
        ],
    )
    assert "you said in message 1: “My dentist is Dr Weber.”" in said


BESIDE = "beside the path of this conversation"


def numbers_of(text: str) -> dict[int, bool]:
    """The messages that are told of, and whether each is said to be beside the path."""
    lines = re.findall(r"^(?:- )?#(\d+) \((.*?)\)", text, re.MULTILINE)
    return {int(number): BESIDE in about for number, about in lines}


@pytest.mark.slow
@pytest.mark.both_databases
def test_what_is_on_another_branch_is_found_and_said_to_be_there(alice):
    session = load_session(make_tree(alice))
    messages = {message.seq: message for message in load_messages(session.id)}
    found = numbers_of(ask(session, "lcm_grep", pattern="marigold", mode="text"))
    assert found == {1: False, 3: False, 5: True, 7: True, 9: True, 11: True}
    found = numbers_of(ask(session, "lcm_grep", pattern="tulip", mode="text", limit=50))
    assert {number for number, is_beside in found.items() if not is_beside} == {13}
    assert numbers_of(ask(session, "lcm_grep", pattern="rose", mode="text")) == {21: False}
    for number, where in ((5, "branch 0"), (15, "branch 1"), (23, "branch 3")):
        message = messages[number]
        for name, id in (
            *(("lcm_read", message.id), ("lcm_describe", message.id), ("lcm_read", message.parts[0].id)),
            *(("lcm_describe", message.parts[0].id), ("lcm_describe", message.turn_id)),
        ):
            assert f"on {where}, {BESIDE}" in ask(session, name, id=id)
    for number in (1, 4, 13, 14, 21):
        for name in ("lcm_read", "lcm_describe"):
            assert BESIDE not in ask(session, name, id=messages[number].id)
    assert "25 messages" not in ask(session, "lcm_describe", id=session.id)
    assert "on 5 branches, 2 chosen" in ask(session, "lcm_describe", id=session.id)


@pytest.mark.both_databases
def test_the_neighbours_of_a_message_are_those_of_its_path(alice):
    session = load_session(make_tree(alice))
    messages = {message.seq: message for message in load_messages(session.id)}
    expected = {
        **{1: (0, 2), 4: (3, 13), 13: (4, 14), 14: (13, 21), 22: (21, 0)},
        **{5: (4, 6), 12: (11, 0), 15: (14, 16), 20: (19, 0), 23: (0, 24)},
    }
    for number, around in expected.items():
        text = ask(session, "lcm_read", id=messages[number].id)
        before, after = (re.findall(rf"^{word}: message (\d+)", text, re.MULTILINE) for word in ("before", "after"))
        assert (before, after) == tuple([str(one)] if one else [] for one in around)


@pytest.mark.both_databases
def test_a_summary_of_another_branch_is_read_as_one_and_stands_for_its_own_messages_only(alice):
    session = load_session(make_tree(alice))
    summary = next(one for one in list_summaries(session.id) if one.kind == "leaf" and one.last_seq > 12)
    its = {1, 2, 3, 4, *range(13, summary.last_seq + 1)}
    assert (summary.first_seq, summary.message_count) == (1, len(its))
    mark = f"on branch 1, {BESIDE}"
    for name, id in (("lcm_read", summary.id), ("lcm_describe", summary.id)):
        assert mark in ask(session, name, id=id)
    text = ask(session, "lcm_grep", pattern="Noted", mode="text", summary_id=summary.id, limit=50)
    assert set(numbers_of(text)) == {number for number in its if number % 2 == 0}
    assert f"in {len(its)} messages searched" in text
    assert set(numbers_of(ask(session, "lcm_grep", pattern=".*", mode="regex", summary_id=summary.id, limit=50))) == its
    helper = launch(session, alice)
    text = ask(helper, "lcm_expand", summary_id=summary.id)
    assert text.startswith(f"[{mark}]\n")
    first, _, rest = text.partition("[go on with cursor=")
    while rest:
        first, _, rest = ask(helper, "lcm_expand", summary_id=summary.id, cursor=int(rest.partition("]")[0])).partition(
            "[go on with cursor="
        )
        text += first
    assert {int(number) for number in re.findall(r"^message (\d+) \(", text, re.MULTILINE)} == its
    choose_branch(session.id, 1, owner_id=alice.pk)
    for name, id in (("lcm_read", summary.id), ("lcm_describe", summary.id)):
        assert BESIDE not in ask(session, name, id=id)
    assert f"summarised by: {summary.id}" in ask(session, "lcm_describe", id=load_messages(session.id)[0].id)
    _, _, group = ask(session, "lcm_grep", pattern="marigold", mode="text").partition(f"Summarised by {summary.id}:")
    assert set(numbers_of(group.partition("Not summarised:")[0])) == {1, 3}


@pytest.mark.both_databases
def test_each_branch_is_told_of_the_summary_that_stands_on_it(alice):
    session = load_session(make_tree(alice))
    choose_branch(session.id, 0, owner_id=alice.pk)
    assert compact_now(session.id).summary_ids
    first = load_messages(session.id)[0]
    for branch in (0, 1, 0):
        choose_branch(session.id, branch, owner_id=alice.pk)
        told = {summary.branch: summary for summary in list_summaries(session.id) if summary.kind == "leaf"}
        assert f"stands for it\nsummarised by: {told[branch].id}" in ask(session, "lcm_describe", id=first.id)
        assert f"Summarised by {told[branch].id}" in ask(session, "lcm_grep", pattern='"marigold number 0"')

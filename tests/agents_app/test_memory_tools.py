"""The memory tools: whose record they see, and that no id which a model is shown leads nowhere."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable

import pytest
from django.contrib.auth.models import User

from agents_app import lifecycle
from agents_app.tools import ToolContext, find_tool
from agents_app.tools.grepping import LARGEST_PAGE
from compaction_app import store as compaction_store
from compaction_app.context import build_context
from files_app.contents import put_content
from files_app.store import store_file_reference
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound, PermissionDenied
from mnesis_core.ids import find_ids, new_id
from mnesis_core.messages import DataPart, FileRefPart, Part, PatchPart, TextPart, ToolPart, ToolState
from mnesis_core.providers import demo_replies
from mnesis_core.record import SUB_AGENT, SessionRecord
from sessions_app import store
from sessions_app.ledger import change
from sessions_app.queries import load_messages, load_session
from tests.support.inspected import add_summary, add_turn, claim, finish, revise, tool_part

ASKING = {"lcm_describe": "id", "lcm_read": "id", "lcm_expand": "summary_id"}


def ask(session: SessionRecord, name: str, **arguments: object) -> str:
    tool = find_tool(name)
    answer = tool.call(ToolContext(session_id=session.id, owner_id=session.owner_id), json.dumps(arguments))
    assert isinstance(answer, str)
    return answer


def launch(parent: SessionRecord, owner: User) -> SessionRecord:
    """A sub-agent's session, without a turn."""
    return load_session(store.create_session(owner=owner, model="demo", parent_id=parent.id, origin=SUB_AGENT))


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
    lines = ask(session, "lcm_grep", pattern="marigold").split("\n")
    assert lines[0] == "4 hits in 6 messages searched."
    groups = [line for line in lines if not line.startswith("- ")][1:]
    assert sorted(groups) == sorted([f"Summarised by {leaf}:", "Not summarised:", "Summaries and files:"])
    assert lines[lines.index(f"Summarised by {leaf}:") + 1].startswith(f"- message 1 ({ids[0]}, part_")
    inside = ask(session, "lcm_grep", pattern="number", summary_id=leaf)
    assert inside.startswith("1 hits in 2 messages searched.")


def test_a_search_goes_on_from_its_cursor_until_everything_was_seen_once(session, alice):
    for number in range(7):
        add_turn(session.id, f"Marigold number {number}")
    child = launch(session, alice)
    add_turn(child.id, "Marigold of the child")
    seen: list[str] = []
    cursor = ""
    for _ in range(9):
        page = ask(child, "lcm_grep", pattern="marigold", limit=3, cursor=cursor)
        seen += re.findall(r"^- message \d+ \((msg_\w+)", page, re.MULTILINE)
        if "go on with cursor=" not in page:
            break
        cursor = page.split("go on with cursor=")[1].split("\n")[0]
    assert len(seen) == len(set(seen)) == 8
    assert seen[0] == load_messages(child.id)[0].id  # its own come first
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
    [message, _] = add_turn(session.id, f"It was called {nothing}")
    assert message in ask(session, "lcm_describe", id=nothing)
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

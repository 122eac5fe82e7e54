"""Defects 3, 4, 10, 21, 29, 31 and 33 of the reference library: summaries of summaries, and of what nobody read."""

from __future__ import annotations

import pytest

from agents_app.turns import lifecycle
from compaction_app.compact import compact_now
from compaction_app.context.state import load_meter, load_state
from compaction_app.queries import list_runs, list_summaries
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.llm.interface import Source, Usage
from mnesis_core.messages import FileRefPart, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.providers.scripted import Step
from sessions_app.record.message_queries import load_messages
from tests.defects.talks import WORDS, add_turn, compact_all, is_summary_request, model_of, prompts_of


def in_context(session) -> set[str]:
    return {entry.message.id for entry in load_state(session.id).entries if isinstance(entry, MessageEntry)}


def test_three_compactions_make_summaries_that_do_not_overlap(session, script):
    """Defect 3: each compaction began at message 0 again, and the older summaries stayed beside the new one."""
    asked = script(model_of())
    prompts, seen = [], 0
    for round_number in range(3):
        for index in range(6):
            add_turn(session, f"Question {round_number}-{index}. {WORDS * 6}")
        compact_now(session.id)
        prompts.append(prompts_of(asked.requests[seen:]))
        seen = len(asked.requests)
    leaves = sorted((node for node in list_summaries(session.id) if node.kind == "leaf"), key=lambda n: n.first_seq)
    assert len(leaves) >= 3
    covered = [id for leaf in leaves for _, id in leaf.source_ids]
    shown = in_context(session)
    assert covered == [message.id for message in load_messages(session.id, limit=1_000) if message.id not in shown]
    assert "Question 0-0" in prompts[0]
    assert "Question 0-0" not in prompts[1] + prompts[2]


@pytest.mark.slow
def test_no_word_leaves_the_context_that_no_summariser_was_shown(session, script):
    """Defect 4: of 2,000,000 characters that were summarised away, 59,639 had been read."""
    asked = script(model_of())
    for turn in range(8):
        words = " ".join(f"w{turn}x{index}" for index in range(2_500))
        output = " ".join(f"o{turn}x{index}" for index in range(500))
        tool = ToolPart(tool_name="skill", tool_call_id="c", output=output, state=ToolState.COMPLETED)
        add_turn(session, words, tool, TextPart(text=f"a{turn}x0"))
    compact_all(session)
    shown, read = in_context(session), set(prompts_of(asked.requests).split())
    gone = [message for message in load_messages(session.id, limit=1_000) if message.id not in shown]
    assert len(gone) == 14
    parts = [stored.part for message in gone for stored in message.parts]
    words = {word for part in parts for name in ("text", "output") for word in (getattr(part, name, "") or "").split()}
    assert len(words) > 18_000
    # A long text is read in pieces, and the end of one may cut a word.
    assert len(words - read) < len([request for request in asked.requests if is_summary_request(request)])


def test_file_ids_survive_a_compaction_wherever_they_stood(session, script):
    """Defect 10: ids in tool inputs, in long or tombstoned outputs and in file references were lost."""
    script(model_of())
    ids = [f"file_{number:016x}" for number in range(1, 7)]
    long = WORDS * 30
    completed = ToolState.COMPLETED
    add_turn(
        session,
        f"{long} {ids[0]} {long}",
        ToolPart(tool_name="read", tool_call_id="1", input=f'{{"path": "{ids[1]}"}}', output="done", state=completed),
        ToolPart(tool_name="read", tool_call_id="2", output=f"{long} {ids[2]} {long}" * 3, state=completed),
        ToolPart(tool_name="read", tool_call_id="3", error=f"{long} {ids[3]}", state=ToolState.ERROR),
        ReasoningPart(text=f"It must be in {ids[4]}."),
        FileRefPart(file_id=ids[5], path="/ledgers.csv", exploration_summary="Rows of ledgers."),
    )
    for _ in range(4):
        add_turn(session, WORDS * 8)
    compact_all(session)
    summaries = [entry for entry in load_state(session.id).entries if isinstance(entry, SummaryEntry)]
    text = "\n".join(entry.text for entry in summaries)
    assert [id for id in ids if id not in text] == []


def test_a_prompt_is_no_template_for_what_people_say(session, script):
    """Defect 21: templates ran what stood in them."""
    asked = script(model_of())
    said = "{{source}} {{target}} {conversation} {0.__class__.__mro__} {{7*7}} {% debug %} %s %(target)d $target {"
    for index in range(6):
        add_turn(session, f"{said} {index} {WORDS * 6}")
    compact_now(session.id)
    assert f"{said} 0" in prompts_of(asked.requests)


def test_tokens_before_and_after_are_those_of_the_context_summaries_included(session, script):
    """Defect 29: they were counted by three rules, over what had been compacted long ago, without the summaries."""
    script(model_of())
    for _ in range(2):
        for _ in range(8):
            add_turn(session, WORDS * 8)
        before = load_meter(session.id)
        run = compact_now(session.id)
        after = load_meter(session.id)
        assert (run.tokens_before, run.tokens_after) == (before.used_tokens, after.used_tokens)
    assert after.breakdown["summaries"] > 0


def test_an_output_in_a_users_message_is_pruned_like_any_other(session, script):
    """Defect 33: the pruner could not see tool parts of users' messages."""
    script(model_of())
    output = "row of the ledger " * 400
    for index in range(8):
        tool = ToolPart(tool_name="read", tool_call_id=f"c{index}", output=output, state=ToolState.COMPLETED)
        add_turn(session, [TextPart(text="I read it myself."), tool])
    run = compact_now(session.id)
    parts = [stored.part for message in load_messages(session.id) for stored in message.parts]
    tombstoned = [part for part in parts if isinstance(part, ToolPart) and part.compacted_at]
    assert run.pruned_parts == len(tombstoned) > 0
    assert {part.output for part in tombstoned} == {output}


def test_what_a_compaction_used_and_cost_is_in_the_record(alice, script):
    """Defect 31: costs were always 0, cached tokens were not read, compactions not counted at all."""
    usage = Usage(input_tokens=1_000, output_tokens=50, cache_read_tokens=400, source=Source.PROVIDER)
    script(model_of(Step(text="- They moved the ledgers.", usage=usage)))
    prices = {"input": 3_000_000, "output": 15_000_000, "cache_read": 300_000}
    session = lifecycle.create_session(owner=alice, config={"prices": prices})
    for _ in range(8):
        add_turn(session, WORDS * 8)
    compact_now(session.id)
    [run] = list_runs(session.id)
    nodes = list_summaries(session.id)
    assert nodes
    assert run.cost_micros == sum(node.cost_micros for node in nodes) == len(nodes) * (600 * 3 + 120 + 750)
    assert run.tokens_input == sum(node.tokens_input for node in nodes) == len(nodes) * 1_000

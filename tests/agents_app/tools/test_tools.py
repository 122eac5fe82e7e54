"""The shipped tools, and the registry's checks."""

from __future__ import annotations

import json

import pytest

from agents_app.tools.registry import ToolContext, offered_tools
from agents_app.turns import lifecycle
from mnesis_core.errors import (
    InvalidRequest,
    MessageNotFoundError,
    SessionNotFoundError,
    SummaryNotFoundError,
)
from mnesis_core.messages import DataPart, Message, TextPart, ToolPart, ToolState
from mnesis_core.records import SessionRecord
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from tests.support.record.inspected import add_summary, claim, revise
from tests.support.record.tools import find_tool

NOWHERE = ToolContext(session_id="sess_none", owner_id=0)


def call(name: str, arguments: str, context: ToolContext = NOWHERE) -> str:
    return find_tool(name).call(context, arguments)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(3 + 4) * 12", "84"),
        ("1234567 * 2", "2469134"),
        ("0.1 + 0.2", "0.3"),
        ("-7 // 2", "-4"),
        ("10 % 4", "2"),
        ("99999999999999999999 + 1", "100000000000000000000"),
    ],
)
def test_sums_are_right(expression, value):
    assert call("calculator", f'{{"expression": "{expression}"}}') == value


@pytest.mark.parametrize(
    "expression",
    ["", "1 +", "2 ** 99", "__import__('os')", "x", "1 / 0", "9" * 501, "(" * 300, "True", "'a' * 3"],
)
def test_what_is_no_sum_is_refused_in_words(expression):
    with pytest.raises(InvalidRequest):
        call("calculator", f'{{"expression": "{expression}"}}')


@pytest.mark.parametrize("arguments", ["", "nonsense", "[]", "{}", '{"expression": 3}', '{"expression": "1", "x": 2}'])
def test_arguments_that_do_not_fit_are_refused(arguments):
    with pytest.raises(InvalidRequest, match="arguments do not fit"):
        call("calculator", arguments)


def test_an_unknown_tool_is_offered_to_nobody():
    assert list(offered_tools(["nosuch", "calculator"], user_id=None)) == ["calculator"]
    spec = find_tool("lcm_grep").spec
    assert spec.parameters["required"] == ["pattern"]
    assert spec.description


@pytest.fixture
def context(session: SessionRecord) -> ToolContext:
    with change(session.id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        tool = ToolPart(
            tool_name="read",
            tool_call_id="c",
            input='{"path": "a"}',
            output="a Marigold row",
            state=ToolState.COMPLETED,
        )
        parts = (TextPart(text="The word is marigold, 100%_sure."), tool, DataPart(label="x", text="marigold"))
        message_store.append_message(record, turn_id=turn_id, message=Message(role="user", parts=parts))
        message_store.append_message(
            record, turn_id=turn_id, message=Message(role="user", parts=(TextPart(text="x" * 20_000),))
        )
    return ToolContext(session_id=session.id, owner_id=session.owner_id)


def test_grep_finds_words_in_texts_and_outputs_whatever_their_case(context):
    found = call("lcm_grep", '{"pattern": "MARIGOLD", "mode": "text"}', context)
    assert found.startswith("2 hits in 2 messages searched.")
    assert "The word is marigold" in found
    assert "a Marigold row" in found
    assert call("lcm_grep", '{"q": "100%_sure", "mode": "text"}', context).startswith("1 hits")
    assert call("lcm_grep", '{"pattern": "nowhere"}', context).startswith("0 hits")
    with pytest.raises(InvalidRequest):
        call("lcm_grep", '{"pattern": " "}', context)


def test_read_goes_through_a_long_message_page_by_page(context):
    long = load_messages(context.session_id)[1].id
    first = call("lcm_read", f'{{"id": "{long}"}}', context)
    assert "read on with offset=8000]" in first
    last = call("lcm_read", f'{{"id": "{long}", "offset": 16000}}', context)
    assert last.startswith("x" * 4_000)
    assert "before: message 1 (msg_" in last
    assert call("lcm_read", f'{{"id": "{long}", "offset": 20, "limit": 5}}', context).startswith(
        "x" * 5 + "\n[characters"
    )


def test_describe_leads_to_the_newest_revision_and_says_what_is_stale(context):
    messages = [message.id for message in load_messages(context.session_id)]
    run = claim(context.session_id)
    leaf = add_summary(context.session_id, run, messages, (1, 2))
    top = add_summary(context.session_id, run, [leaf], (1, 2), kind="condensed")
    newer = revise(context.session_id, leaf, messages, text="Marigolds.")

    def describe(id: str) -> str:
        return call("lcm_describe", json.dumps({"id": id}), context)

    assert f"newest revision: {newer}\n" in describe(leaf)
    assert "stale: something below it was revised since\n" in describe(top)
    assert "with all below: 2 summaries" in describe(top)
    assert describe(newer).endswith("Marigolds.")
    assert f"parents: {top}\n" in describe(newer)


def test_tools_see_their_own_session_only(context, bob):
    elsewhere = ToolContext(session_id="sess_other", owner_id=bob.pk)
    message = load_messages(context.session_id)[0].id
    with pytest.raises(SessionNotFoundError):
        call("lcm_read", f'{{"id": "{message}"}}', elsewhere)
    own = ToolContext(session_id=lifecycle.create_session(owner=bob).id, owner_id=bob.pk)
    with pytest.raises(MessageNotFoundError):
        call("lcm_read", f'{{"id": "{message}"}}', own)
    with pytest.raises(SummaryNotFoundError):
        call("lcm_describe", '{"id": "sum_x"}', own)
    assert call("lcm_grep", '{"pattern": "marigold"}', own).startswith("0 hits")

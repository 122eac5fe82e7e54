"""Every call to a summarising model and every try is a row: before it is made, and whatever comes of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from compaction_app import store
from compaction_app.compact import compact_now, compact_session, request_manual
from compaction_app.context.state import rebuild_payload
from compaction_app.models import CompactionRun, SummaryTry
from compaction_app.queries import list_runs, list_summaries, usage_of_compaction
from mnesis_core.compaction.requests import SHIPPED, parse_prompt
from mnesis_core.errors import ModelUnavailable
from mnesis_core.llm.interface import ModelSpec, Prices, Request, Source, ToolCall, Usage
from mnesis_core.providers.scripted import Counting, Script, ScriptedModel, Step
from mnesis_core.records import CallRecord, SessionRecord
from mnesis_core.text import decode_text
from sessions_app.conf import site_config
from sessions_app.models import LanguageModel, ModelCall
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.test_compaction import WORDS, add_turns
from tests.support.people import story

COUNTED = Usage(input_tokens=1_000, output_tokens=100, source=Source.PROVIDER)


@pytest.fixture
def priced(script: Callable[..., ScriptedModel]) -> Callable[..., ScriptedModel]:
    """A script whose tokens cost one millionth each."""

    def install(*replies: Any, window: int = 8_000) -> ScriptedModel:
        spec = ModelSpec(
            alias="demo",
            litellm_model="scripted/demo",
            context_window=window,
            max_output_tokens=1_000,
            prices=Prices(input=1_000_000, output=1_000_000),
        )
        story._MODELS["demo"] = ScriptedModel(spec, replies[0] if callable(replies[0]) else list(replies))
        return story._MODELS["demo"]

    return install


def elsewhere(question: Callable[[], Any]) -> Any:
    """What another connection sees or does meanwhile."""

    def ask() -> Any:
        try:
            return question()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result(timeout=10)


def configure(session: SessionRecord, **values: Any) -> None:
    with change(session.id) as record:
        session_store.update_session(record, config={"compaction": values})


def rename(session: SessionRecord) -> None:
    with change(session.id) as record:
        session_store.update_session(record, title="Written meanwhile")


def summary_calls(session: SessionRecord) -> list[CallRecord]:
    """Calls to a summarising model, oldest first."""
    return [call for call in reversed(list_calls(session.id, limit=1_000)) if call.purpose == "summary"]


def assert_rebuilt(session: SessionRecord, model: ScriptedModel) -> None:
    """Every call that the model got is a row whose payload is rebuilt byte for byte."""
    calls = summary_calls(session)
    assert len(calls) == len(model.requests) > 0
    for call, request in zip(calls, model.requests, strict=True):
        rebuilt = rebuild_payload(call)
        assert (rebuilt.payload, rebuilt.problems) == (request.payload, ())


@pytest.mark.both_databases
def test_a_call_is_written_before_it_is_made_and_nothing_is_held_meanwhile(session, script):
    seen: list[tuple[str, str]] = []

    def reply(request: Request) -> Script:
        [call] = elsewhere(lambda: summary_calls(session))
        seen.append((call.state, call.digest))
        elsewhere(lambda: rename(session))
        return "- A summary."

    model = script(reply)
    add_turns(session, 8)
    run = compact_now(session.id)
    [call] = summary_calls(session)
    assert seen == [("running", call.digest)]
    assert (call.state, call.outcome, call.parameters["run_id"]) == ("completed", "complete", run.id)
    [attempt] = run.tries
    assert (attempt.call_id, attempt.accepted, attempt.level, attempt.prompt_version) == (call.id, True, 1, "level1.2")
    assert attempt.summary_id == run.summary_ids[0] == call.parameters["summary_id"]
    assert_rebuilt(session, model)


@pytest.mark.both_databases
def test_a_rejected_reply_is_kept_word_for_word_with_its_reason_tokens_and_cost(session, priced):
    hostile = "I cannot help with that. \x00 \ud800"
    tool = ToolCall(id="1", name="rm\x00", arguments='{"a": "\ud800"}')
    priced(
        Step(text=hostile, reasoning="Why me?", usage=COUNTED),
        Step(text="- Fine.", tool_calls=(tool,), usage=COUNTED),
    )
    add_turns(session, 8)
    run = compact_now(session.id)
    assert [(attempt.level, attempt.accepted, attempt.reason) for attempt in run.tries] == [
        (1, False, "refusal"),
        (2, False, "tool_call"),
        (3, True, ""),
    ]
    assert [(attempt.tokens_input, attempt.tokens_output, attempt.cost_micros) for attempt in run.tries] == [
        (1_000, 100, 1_100),
        (1_000, 100, 1_100),
        (0, 0, 0),
    ]
    first, second, third = SummaryTry.objects.order_by("number")
    assert (decode_text(first.text), first.reasoning) == (hostile, "Why me?")
    assert [decode_text(call["name"]) for call in second.tool_calls] == ["rm\x00"]
    assert (third.call_id, third.text) == (None, list_summaries(session.id)[0].text)
    assert run.cost_micros == usage_of_compaction(session.id).cost_micros == 2_200
    assert verify_session(session.id).problems == []


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ({"speaker_user": "Ana", "speaker_assistant": "Bo"}, "[speakers] user is Ana; assistant is Bo"),
        ({"speaker_assistant": "Bo"}, "[speakers] assistant is Bo"),
        (
            {"speaker_user": "a\n</conversation>{{source}}]\x00 {{target}} \ud800"},
            "[speakers] user is a &lt;/conversation> source \x00 target \ufffd",
        ),
    ],
)
def test_speakers_named_by_labels_are_told_and_told_again_when_the_labels_have_changed(session, script, labels, line):
    model = script(lambda _: "- A summary.")
    with change(session.id) as record:
        session_store.update_session(record, labels=labels)
    add_turns(session, 8)
    compact_now(session.id)
    with change(session.id) as record:
        session_store.update_session(record, labels={"speaker_user": "Eve"})
    asked = model.requests[0].payload["messages"][1]["content"]
    assert f"<conversation>\n{line}\n[1 user, " in asked
    assert_rebuilt(session, model)


def test_a_question_from_before_labels_had_days_is_rebuilt_as_it_was(session, script):
    script(lambda _: "- A summary.")
    add_turns(session, 8)
    compact_now(session.id)
    [call] = summary_calls(session)
    before = [{name: value for name, value in row.items() if name != "form"} for row in call.manifest]
    then = rebuild_payload(replace(call, manifest=before)).payload["messages"][1]["content"]
    now = rebuild_payload(call).payload["messages"][1]["content"]
    assert re.sub(r"(?<=user), \d{4}-\d\d-\d\d(?=\])", "", now) == then != now


@pytest.mark.slow
@pytest.mark.parametrize("text", [WORDS * 6_000, "\x00 </conversation> \ud800 好" * 14_000])
def test_what_is_read_in_pieces_and_merged_is_rebuilt_too(session, script, text):
    def reply(request: Request) -> Script:
        is_merge = "You merge" in str(request.payload["messages"][0])
        return "<think>hm</think>- " + "A detail of the move. " * (4 if is_merge else 8)

    model = script(reply, window=4_000)
    add_turns(session, 1, text=text)
    add_turns(session, 4)
    run = compact_now(session.id)
    assert max(attempt.pieces for attempt in run.tries) > 2
    assert any(row["kind"] == "try" for call in summary_calls(session) for row in call.manifest)
    assert_rebuilt(session, model)


def test_pieces_that_are_refused_as_too_long_are_read_shorter_and_rebuilt_too(session, script):
    model = script(lambda _: "- A summary.")
    model.counting = Counting(window=3_000)
    add_turns(session, 12)
    run = compact_now(session.id)
    refused, *rest = summary_calls(session)
    assert (refused.error_code, refused.usage.tokens_input) == ("CONTEXT_WINDOW_EXCEEDED", 0)
    assert rest[-1].error_code is None
    assert {summary.level for summary in list_summaries(session.id)} == {1}
    assert run.state == "completed"
    assert_rebuilt(session, model)


@pytest.mark.slow
def test_condensations_and_excerpts_of_pieces_are_rebuilt_too(session, script):
    count = iter(range(10_000))

    def reply(request: Request) -> Script:
        return "" if next(count) % 5 == 0 else "- " + "A detail of the move. " * 60

    model = script(reply)
    for _ in range(14):
        add_turns(session, 4)
        compact_now(session.id)
    assert {row["kind"] for call in summary_calls(session) for row in call.manifest} >= {"messages", "summary"}
    assert_rebuilt(session, model)
    assert verify_session(session.id).problems == []


def test_a_prompt_that_is_shipped_no_more_is_still_known(session, script, monkeypatch):
    older = parse_prompt(
        "level1", SHIPPED.level1.text.replace("version: 2", "version: 0").replace("Rules", "Old rules")
    )
    monkeypatch.setattr("compaction_app.compact.site_prompts", lambda: replace(SHIPPED, level1=older))
    model = script(lambda request: "- A summary.")
    add_turns(session, 8)
    [attempt] = compact_now(session.id).tries
    monkeypatch.undo()
    assert attempt.prompt_version == "level1.0"
    assert "Old rules" in str(model.requests[0].payload)
    assert_rebuilt(session, model)


@pytest.mark.parametrize(
    ("change_call", "problem"),
    [
        (lambda call: {"parameters": {}}, "the prompt level1.2 of then was not kept"),
        (lambda call: {"manifest": call.manifest[1:]}, "names no prompt"),
        (lambda call: {"manifest": [call.manifest[0]]}, "no piece"),
        (lambda call: {"manifest": call.manifest[:2]}, "there is no piece 1"),
        (lambda call: {"manifest": [*call.manifest[:2], {"kind": "try", "id": "try_x"}]}, "there is no piece 1"),
        (lambda call: {"manifest": [{**call.manifest[0], "target": 7}, *call.manifest[1:]]}, "reads differently"),
        (lambda call: {"manifest": [*call.manifest[:2], {"kind": "messages", "ranges": [[9, 1]]}]}, "row 3"),
    ],
)
def test_what_is_missing_of_a_question_is_said(session, script, change_call, problem):
    script(lambda request: "- A summary.")
    add_turns(session, 8)
    compact_now(session.id)
    [call] = summary_calls(session)
    rebuilt = rebuild_payload(replace(call, **change_call(call)))
    assert not rebuilt.digest_matches
    assert problem in rebuilt.problems[0]


def test_a_call_that_broke_off_ends_with_its_run(session, script):
    def explode(request: Request) -> Script:
        raise RuntimeError("a bug in an adapter")

    script(explode)
    add_turns(session, 8)
    run = compact_now(session.id)
    assert (run.state, run.tries) == ("failed", ())
    [call] = summary_calls(session)
    assert (call.state, call.error_code) == ("failed", "MODEL_CALL_ABANDONED")
    assert verify_session(session.id).problems == []


@pytest.mark.both_databases
def test_whoever_takes_a_compaction_over_closes_the_call_of_the_dead(session, script):
    script(lambda request: "- A summary.")
    add_turns(session, 8)
    run_id = request_manual(session.id)
    with change(session.id) as record:
        store.claim_run(record, run_id, lease_owner="dead", lease_seconds=60, tokens_before=1)
        values = {"model": "demo", "provider_model": "demo", "manifest": [], "context_seq": 1, "digest": "d"}
        dead = turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            purpose="summary",
            parameters={"run_id": run_id},
            estimated_tokens=1,
            **values,
        )
    CompactionRun.objects.filter(id=run_id).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert compact_session(session.id, run_id=run_id).state == "completed"
    states = dict(ModelCall.objects.filter(purpose="summary").values_list("id", "error_code"))
    assert len(states) == 2
    assert states[dead] == "MODEL_CALL_ABANDONED"


def test_a_session_says_apart_what_its_summaries_took(session, priced, client, alice):
    priced(Step(text="- A summary.", usage=COUNTED))
    add_turns(session, 8)
    compact_now(session.id)
    client.force_login(alice)
    billing = client.get(f"/api/sessions/{session.id}").json()["billing"]
    assert billing["compaction"]["input_tokens"] == billing["input_tokens"] == 1_000
    assert (billing["turns"]["cost_micros"], billing["compaction"]["cost_micros"]) == (0, 1_100)
    assert billing["cost_micros"] == 1_100
    [run] = client.get(f"/api/sessions/{session.id}/compactions").json()["items"]
    [attempt] = run["tries"]
    assert (attempt["accepted"], attempt["input_tokens"], attempt["cost_micros"]) == (True, 1_000, 1_100)
    assert client.get(f"/api/calls/{attempt['call_id']}").json()["digest_matches"] is True


# Limits


@pytest.mark.parametrize("limit", ["spend_limit_session_micros", "spend_limit_day_micros"])
def test_above_a_spend_limit_level_three_does_it_at_once_and_says_why(session, priced, limit):
    model = priced(lambda request: Step(text="", usage=COUNTED))
    add_turns(session, 8)
    configure(session, **{limit: 5_000})
    run = compact_now(session.id)
    asked = len(model.requests)
    add_turns(session, 8)
    again = compact_now(session.id)
    assert (again.state, again.level) == ("completed", 3)
    reason = limit.removesuffix("_micros")
    assert [attempt.reason for attempt in again.tries if not attempt.accepted][-1] == reason
    assert usage_of_compaction(session.id).cost_micros <= 5_000
    assert len(model.requests) < 2 * asked + len(again.tries)
    [event] = [event for event in load_events(session.id, limit=1_000) if event.type == "budget.exhausted"]
    assert (event.data["run_id"], event.data["reason"]) == (again.id, reason)
    assert run.level == 3
    assert verify_session(session.id).problems == []


def test_yesterdays_and_other_peoples_spending_do_not_count(session, priced, bob):
    model = priced(lambda request: Step(text="- A summary.", usage=COUNTED))
    configure(session, spend_limit_day_micros=6_000)
    add_turns(session, 8)
    other = session_store.create_session(owner=bob, model="demo")
    with change(other) as record:
        run = store.request_run(record, trigger="soft") or ""
    SummaryTry(
        id="try_theirs", session_id=other, run_id=run, number=1, summary_id="", kind="leaf", level=1, piece=1, pieces=1,
        accepted=True, usage_source="provider", cost_micros=10**9, created_at=timezone.now(),
    ).save()  # fmt: skip
    SummaryTry(
        id="try_mine", session_id=session.id, run_id=run, number=2, summary_id="", kind="leaf", level=1, piece=1, pieces=1,
        accepted=True, usage_source="provider", cost_micros=10**9, created_at=timezone.now() - timedelta(days=1),
    ).save()  # fmt: skip
    assert compact_now(session.id).level == 1
    assert len(model.requests) == 1


def test_a_session_cannot_loosen_the_sites_limit(session, priced, settings, tmp_path):
    file = tmp_path / "mnesis.toml"
    file.write_text("[compaction]\nspend_limit_session_micros = 10\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    try:
        model = priced(lambda request: "- A summary.")
        configure(session, spend_limit_session_micros=10**9)
        add_turns(session, 8)
        assert compact_now(session.id).level == 3
        assert model.requests == []
    finally:
        site_config.cache_clear()


@pytest.mark.slow
def test_a_model_that_hangs_is_given_up_and_what_it_said_is_kept(session, script):
    never = asyncio.Event()
    model = script(lambda request: Step(text=("- A", " summary"), gate=never, gate_after=1))
    configure(session, model_timeout_seconds=1.0)
    add_turns(session, 8)
    run = compact_now(session.id)
    assert [(attempt.level, attempt.reason) for attempt in run.tries] == [(1, "timeout"), (3, "")]
    assert (run.state, run.level, len(model.requests), model.abandoned) == ("completed", 3, 1, 1)
    assert SummaryTry.objects.get(reason="timeout").text == "- A"
    [call] = summary_calls(session)
    assert (call.state, call.outcome, call.error_code) == ("failed", "broken", "MODEL_TIMEOUT")


def test_a_run_that_takes_too_long_ends_at_level_three(session, script):
    model = script(lambda request: Step(text="", delay_seconds=0.1), window=4_000)
    configure(session, run_timeout_seconds=0.15)
    add_turns(session, 16)
    run = list_runs(session.id)[0] if compact_now(session.id) else None
    assert run
    assert (run.state, run.level) == ("completed", 3)
    assert [attempt.reason for attempt in run.tries if attempt.reason][-1] in ("run_timeout", "timeout")
    assert len(model.requests) <= 2


def test_a_summary_that_one_model_does_not_give_another_one_writes(alice, script):
    for alias, window in (("narrow", 1_000), ("spare", 8_000)):
        LanguageModel.objects.create(
            alias=alias, litellm_model=f"scripted/{alias}", context_window=window, max_output_tokens=300
        )
    session = lifecycle.create_session(owner=alice, config={"fallbacks": ["narrow", "spare"]})
    script(lambda request: ModelUnavailable())
    narrow = script(lambda request: "never", window=1_000, alias="narrow")
    script(lambda request: "- They spoke of the crane.", alias="spare")
    add_turns(session, 8)
    run = compact_now(session.id)
    assert (run.state, run.level) == ("completed", 1)
    assert narrow.requests == []
    assert {node.model for node in list_summaries(session.id)} == {"spare"}
    calls = list_calls(session.id)
    assert {(call.model, call.attempts, call.error_code) for call in calls} == {
        ("demo", 3, "MODEL_UNAVAILABLE"),
        ("spare", 1, None),
    }
    assert all(rebuild_payload(call).digest_matches for call in calls)
    assert [attempt.reason for attempt in run.tries if not attempt.accepted] == ["MODEL_UNAVAILABLE"] * (
        len(calls) // 2
    )

"""A session that lives through every kind of event but those of a running turn, with one text wherever a row takes any."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from django.contrib.auth.models import User

from agents_app import store as operator_store
from compaction_app import store as compaction_store
from compaction_app.compact import request_if_due
from compaction_app.facts import store as fact_store
from compaction_app.facts.reflect import Lost, carry
from files_app.contents import put_content
from files_app.store import finish_exploration, store_file_reference
from mnesis_core.compaction.requests import Attempt
from mnesis_core.context.fitting import Pressure, Reason, Trigger
from mnesis_core.errors import ContextChanged, MnesisError, ModelUnavailable
from mnesis_core.facts import HeldFor
from mnesis_core.llm.interface import ToolCall
from mnesis_core.llm.retrying import Retry
from mnesis_core.maps.values import RunState
from mnesis_core.messages import DataPart, FileRefPart, Message, PatchPart, ReasoningPart, TextPart, ToolPart
from mnesis_core.network.sharing import Audience
from mnesis_core.providers.rendering import digest
from mnesis_core.records import MessageEnd, Thumb, TurnState, new_id
from mnesis_core.text import text_digest
from mnesis_core.turns.inbox import Draft, Hosting
from sessions_app.record import histories, message_store, session_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_message, load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.shares import share_store
from tests.support.record.claims import add_claims
from tests.support.record.facts import add_facts, add_reflection, new_fact
from tests.support.record.inspected import USAGE, add_preview, add_summary, claim, finish, revise
from tests.support.record.operators import WORKER, add_run, paused_run, refuse, settle, settled_run
from tests.support.record.operators import claim as claim_items


def live(owner: User, text: str) -> str:
    """Return the id of the session, which is deleted at the end."""
    session_id = session_store.create_session(
        owner=owner,
        model="demo",
        title=text,
        agent=text,
        system_prompt=text,
        labels={text: text},
        config={text: text},
        external_id=text,
        peer_name=text,
    )
    pairs = [_turn(session_id, text, state, key=f"{text} {state}") for state in TurnState if state.is_end]
    _tools(session_id, text)
    _files_and_letters(session_id, text, turn_id=str(load_message(pairs[0][0], session_id=session_id).turn_id))
    _compactions(session_id, text, pairs)
    _maps(session_id, text)
    _end(session_id, owner, text)
    return session_id


def _turn(session_id: str, text: str, state: TurnState, *, key: str) -> list[str]:
    parts = (
        *(TextPart(text=text), ReasoningPart(text=text), DataPart(label=text, text=text)),
        *(FileRefPart(file_id="file_1", path=text), PatchPart(unified_diff=text, files_changed=(text,))),
    )
    end = MessageEnd(
        model=text, finish_reason=text, outcome="broken", error_code="MODEL_UNAVAILABLE", error_message=text,
        usage=USAGE, usage_said=text, stop_sequence=text, first_token_ms=12, tokens_cache_write_1h=1,
    )  # fmt: skip
    with change(session_id) as record:
        turn = turn_store.start_turn(
            record, model=text, idempotency_key=key, request_digest=text_digest(text), options=json.dumps({text: text})
        )
        if state is TurnState.CANCELLED:
            turn_store.request_interrupt(record, turn)
        user = Message(role="user", parts=(TextPart(text=text),))
        first = message_store.append_message(record, turn_id=turn, message=user, external_id=text, agent=text)
        stub = Message(role="assistant", parts=())
        second = message_store.append_message(record, turn_id=turn, message=stub, model=text)
        calls = [_call(record, text, turn_id=turn, message_id=second) for _ in range(2)]
        turn_store.note_retry(record, calls[0], Retry(attempt=1, error=ModelUnavailable(text), pause_seconds=0.5))
        message_store.append_parts(record, message_id=second, parts=parts)
        turn_store.finish_call(record, calls[0], end)
        turn_store.finish_call(record, calls[1], replace(end, error_code=None, error_message=None))
        message_store.finalize_message(record, second, end)
        turn_store.finish_turn(record, turn, state=state, usage=USAGE, error_code="TURN_FAILED", error_message=text)
    return [first, second]


def _call(record: Change, text: str, *, turn_id: str, message_id: str) -> str:
    return turn_store.start_call(
        record,
        turn_id=turn_id,
        message_id=message_id,
        model=text,
        provider_model=text,
        parameters={text: text},
        manifest=[{"id": text}],
        context_seq=1,
        digest=digest({"messages": [{"role": "user", "content": text}]}),
        estimated_tokens=7,
        texts={"tools": text},
    )


def _tools(session_id: str, text: str) -> None:
    """A turn that waits for a person: a call that is approved, one that is refused, and one that is answered late."""
    waiting = tuple(ToolPart(tool_name=text, tool_call_id=f"{text} {number}", input=text) for number in range(3))
    with change(session_id) as record:
        turn = turn_store.start_turn(record, model="demo")
        message = message_store.append_message(record, turn_id=turn, message=Message(role="assistant", parts=waiting))
        yes, no, late = (part.id for part in load_message(message, session_id=session_id).parts)
        turn_store.suspend_turn(record, turn, fence=1, part_ids=[yes, no, late])
        message_store.decide_approval(record, yes, turn_id=turn, approved=True, note=text, refusal="")
        message_store.decide_approval(record, no, turn_id=turn, approved=False, note=text, refusal=text)
        turn_store.resume_turn(record, turn, fence=1, lease_owner="me", lease_seconds=9)
        message_store.start_tool(record, yes)
        message_store.finish_tool(record, yes, output=text, error=None)
        message_store.finish_tool(record, late, output=None, error=text)
        message_store.keep_late_output(record, late, text)
        turn_store.finish_turn(record, turn, state=TurnState.COMPLETED, fence=2)


def _files_and_letters(session_id: str, text: str, *, turn_id: str) -> None:
    with change(session_id) as record:
        file = store_file_reference(
            record, content_id=put_content(text.encode()), path=text, file_type=text, exploration_summary=None, size=9
        )
        finish_exploration(record, file, summary=text, exploration={text: text})
        letter = operator_store.receive_message(record, Draft(text=text), idempotency_key=text)
        operator_store.take_messages(record, [letter], turn_id=turn_id)


def _compactions(session_id: str, text: str, pairs: Sequence[Sequence[str]]) -> None:
    run = claim(session_id)
    first, second = pairs[0], pairs[1]
    leaves = [add_summary(session_id, run, first, (1, 2), text=text), add_summary(session_id, run, second, (3, 4))]
    add_summary(session_id, run, leaves, (1, 4), kind="condensed", text=text)
    tools = [part.id for message in load_messages(session_id) for part in message.parts if part.part.type == "tool"]
    with change(session_id) as record:
        compaction_store.prune(record, run.id, tools, tokens=9)
        compaction_store.record_attempt(
            record,
            Attempt(level=1, accepted=False, reason="refusal"),
            run_id=run.id,
            summary_id=new_id("sum"),
            kind="leaf",
            cost_micros=1,
            tool_calls=[ToolCall(id=text, name=text, arguments=text)],
            text=text,
            reasoning=text,
        )
    finish(session_id, run)
    revise(session_id, leaves[0], first, text=f"{text}, once more")
    add_preview(session_id, leaves[1], second, text=text)
    reflection_id = add_reflection(session_id, leaves[0])
    _, withdrawn, live = add_facts(session_id, first[0], text, reflection_id=reflection_id)
    with change(session_id) as record:
        fact_store.forbid_fact(record, withdrawn)
        fact_store.allow_fact(record, withdrawn)
        fact_store.forbid_fact(record, withdrawn)
        fact_store.hold_fact(record, live, HeldFor.PERSON)
        fact_store.record_fact(record, new_fact(text, of_fact_id=new_id("fact"), of_session_id=new_id("sess")))
        carry(record, Lost(summary_id=leaves[0], counted=9, missing=()), reflection_id=reflection_id)
    add_reflection(session_id, leaves[1], error=MnesisError(text))
    add_claims(session_id, leaves[0], first[0], missing=text)
    for error in (MnesisError(text), ContextChanged(text)):
        run = claim(session_id)
        with change(session_id) as record:
            compaction_store.fail_run(record, run.id, error, fence=run.fence)
    due = Trigger(compact=True, pressure=Pressure.SOFT, reason=Reason.SOFT, used=9)
    with change(session_id) as record:
        request_if_due(record, due)
        request_if_due(record, due)


def _maps(session_id: str, text: str) -> None:
    settled_run(session_id, output=text, template=text, system_prompt=text, idempotency_key=text, path=f"/{text}")
    paused_run(session_id)
    run_id = add_run(session_id)
    first, *others = claim_items(session_id, run_id)
    settle(session_id, run_id, [replace(refuse(first), error=text)])
    items = [item.number for item in others]
    failed = add_run(session_id, begun=False)
    with change(session_id) as record:
        operator_store.note_claimed(record, run_id, dict.fromkeys(items, new_id("sess")))
        operator_store.give_back(record, run_id, worker=WORKER, items=items)
        operator_store.set_run_state(record, run_id, RunState.CANCELLED, reason="person")
        operator_store.fail_run(record, failed, MnesisError(text))


def _end(session_id: str, owner: User, text: str) -> None:
    """Forked, changed, shared, archived, reopened and deleted."""
    shares: list[str] = []
    [first, *_] = load_messages(session_id)
    fork = histories.begin_fork(load_session(session_id), owner=owner, last=first, title=text)
    assert histories.copy_messages(fork)
    hosting = Hosting(is_on=True, name=text)
    steps: list[Callable[[Change], None]] = [
        lambda record: session_store.choose_branch(
            record, session_store.begin_branch(record, parent=0, after_seq=first.seq)
        ),
        lambda record: session_store.update_session(
            record, title=f"{text}!", labels={text: ""}, config={text: 1}, hosting=hosting
        ),
        lambda record: shares.append(share_store.create_share(record, first.id, title=text, audience=Audience.ANYONE)),
        lambda record: share_store.add_opening(record, shares[0], reader="", day=1),
        lambda record: share_store.revoke_share(record, shares[0]),
        lambda record: message_store.rate_message(record, first.id, thumb=Thumb.UP, comment=text),
        session_store.archive_session,
        session_store.reopen_session,
        session_store.soft_delete_session,
    ]
    for step in steps:
        with change(session_id) as record:
            step(record)

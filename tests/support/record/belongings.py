"""One person's belongings: an id of everything that a query may be asked for, each written with the same secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from agents_app.store import receive_message, take_messages
from agents_app.turns import defaults
from compaction_app import queries as compaction_queries
from compaction_app import store as compaction_store
from compaction_app.facts.remember import hold_fact
from files_app.given_store import keep_project_file
from files_app.store import store_file_reference
from mnesis_core.facts import HeldFor
from mnesis_core.messages import DataPart, FileRefPart, Message, ProviderPart, TextPart, ToolPart
from mnesis_core.network.sharing import Audience
from mnesis_core.records import FORK, SUB_AGENT, MessageEnd, Thumb, UsageRecord, new_id
from mnesis_core.turns.inbox import Draft, Hosting
from sessions_app.assistants import prompt_store
from sessions_app.record import message_queries, message_store, project_store, session_store, turn_queries, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.organisation_store import ref_of
from sessions_app.record.shares import share_store
from tests.support.people.cast import make_user
from tests.support.record.claims import add_claims
from tests.support.record.facts import add_facts
from tests.support.record.inspected import add_preview, add_summary, add_try, add_turn, claim, finish, tool_part
from tests.support.record.operators import add_run, settled_run
from tests.support.record.talks import exchange, new_session

SECRET = "herring"
CONTENT = "ab" * 32


@dataclass(frozen=True, kw_only=True)
class Things:
    """What Alice has: one of everything, a turn that runs among it."""

    turn: str
    first: str
    """The first message, which a summary stands for."""
    message: str
    tool: str
    call: str
    summary: str
    preview: str
    fact: str
    attempt: str
    asked: str
    """A call for a summary that was of no use."""
    run: str
    file: str
    child: str
    helper: str
    """A sub-agent's session, which the tool call launched."""
    fork: str
    answered: str
    """The turn with the tool call."""
    stub: str
    letter: str
    """A message in the inbox that waits."""
    share: str
    project: str
    assistant: str
    assistant_file: str
    prompt: str
    project_file: str
    member: str
    map: str
    """A run of an operator."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person who asks, and a session of theirs."""

    owner_id: int
    session_id: str


def person(name: str) -> Person:
    """A user with an empty session."""
    user = make_user(name)
    return Person(owner_id=user.pk, session_id=new_session(user, title="mine"))


def belongings(of: Person) -> Things:
    """One of everything, in this person's session and in a child of it."""
    session_id = of.session_id
    owner = User.objects.get(pk=of.owner_id)
    child = new_session(owner, title=SECRET, parent_id=session_id, origin="import", external_id=SECRET)
    with change(child) as record:
        session_store.update_session(record, hosting=Hosting(is_on=True, name=SECRET))
    message, tool = _said(session_id)
    helper = new_session(owner, title=SECRET, parent_id=session_id, parent_part_id=tool, origin=SUB_AGENT)
    fork = new_session(owner, title=SECRET, parent_id=session_id, origin=FORK)
    add_run(session_id)
    first, summary, preview, attempt, asked = _compacted(session_id, tool)
    exchange(session_id, SECRET, SECRET)
    file, run = _asked(session_id)
    with change(session_id) as record:
        session_store.begin_branch(record, parent=0, after_seq=1)
    with change(session_id) as record:
        shared = share_store.create_share(record, message, title=SECRET, audience=Audience.SITE)
    with change(session_id) as record:
        message_store.rate_message(record, message, thumb=Thumb.DOWN, comment=SECRET)
    turn, stub, letter = _running(session_id)
    fact = add_facts(session_id, first, SECRET)[-1]
    hold_fact(session_id, fact, HeldFor.PERSON, owner_id=owner.pk)
    return Things(
        turn=turn,
        first=first,
        message=message,
        tool=tool,
        call=turn_queries.list_calls(session_id)[0].id,
        summary=summary,
        preview=preview,
        fact=fact,
        attempt=attempt,
        asked=asked,
        run=run,
        file=file,
        child=child,
        helper=helper,
        fork=fork,
        answered=str(message_queries.load_message(message, session_id=session_id).turn_id),
        stub=stub,
        letter=letter,
        share=shared,
        map=settled_run(session_id, idempotency_key=SECRET, part_id=tool),
        **_beside_sessions(owner.pk),
    )


def _beside_sessions(owner_id: int) -> dict[str, str]:
    """A project, an assistant and a prompt, and a file of each of the first two; returns the ids."""
    assistant = defaults.create_assistant(
        owner_id=owner_id, name=SECRET, instructions=SECRET, uploads=[(SECRET, [SECRET.encode()])]
    )
    project = project_store.create_project(owner_id=owner_id, name=SECRET, instructions=SECRET).id
    return {
        "project": project,
        "assistant": assistant.id,
        "assistant_file": assistant.files[0].id,
        "prompt": prompt_store.create_prompt(owner_id=owner_id, name="secret", title=SECRET, text=SECRET).id,
        "project_file": keep_project_file(project, owner_id=owner_id, path=SECRET, chunks=[SECRET.encode()]).id,
        "member": ref_of(owner_id),
    }


def _said(session_id: str) -> tuple[str, str]:
    """Two turns; returns the ids of the last answer and of its tool call."""
    add_turn(session_id, SECRET)
    sealed = ProviderPart(provider="openai", kind="reasoning", data=SECRET)
    answer = (
        *(TextPart(text=SECRET), tool_part(SECRET)),
        *(DataPart(label="x:y", text=SECRET), FileRefPart(file_id=SECRET), sealed),
    )
    _, message = add_turn(session_id, SECRET, *answer)
    return message, message_queries.find_part_of_call(session_id, "c1")


def _compacted(session_id: str, tool: str) -> tuple[str, str, str, str, str]:
    """The first two messages summarised, after a call that was of no use, and an output pruned.

    Returns the ids of the first message, the summary, a preview, the attempt and that call.
    """
    run = claim(session_id)
    first_two = [message.id for message in message_queries.load_messages(session_id)[:2]]
    summary = add_summary(session_id, run, first_two, (1, 2), text=SECRET)
    preview = add_preview(session_id, summary, first_two, text=SECRET)
    add_claims(session_id, summary, first_two[0], missing=SECRET)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, [tool], tokens=9)
        asked = start_lone_call(record, "summary", run_id=run.id)
    add_try(session_id, run, new_id("sum"), text=SECRET, reason="refusal", call_id=asked)
    finish(session_id, run)
    return first_two[0], summary, preview, compaction_queries.load_run(run.id).tries[0].id, asked


def _asked(session_id: str) -> tuple[str, str]:
    """Calls for a file and for a waiting compaction; returns the ids of those two."""
    paid = UsageRecord(tokens_input=9, tokens_output=9, usage_source="provider", cost_micros=9)
    with change(session_id) as record:
        file = store_file_reference(record, content_id=CONTENT, path=f"/{SECRET}", exploration_summary=SECRET, size=9)
        run = compaction_store.request_run(record, trigger="soft")
        for run_id in (run, None):
            start_lone_call(record, "summary", run_id=run_id)
        start_lone_call(record, "file", file_id=file)
        turn_store.finish_call(record, start_lone_call(record, "file"), MessageEnd(outcome="complete", usage=paid))
    return file, run or ""


def _running(session_id: str) -> tuple[str, str, str]:
    """A turn whose lease has run out; returns the ids of it, of its answer so far and of a message that waits."""
    with change(session_id, now=timezone.now() - timedelta(hours=1)) as record:
        turn = turn_store.start_turn(record, model="demo", lease_owner="x", lease_seconds=1, idempotency_key=SECRET)
        waits = ToolPart(tool_name="t", tool_call_id="c2")
        stub = message_store.append_message(record, turn_id=turn, message=Message(role="assistant", parts=(waits,)))
        taken, letter = (receive_message(record, Draft(text=SECRET), idempotency_key=key) for key in (None, SECRET))
        take_messages(record, [taken], turn_id=turn)
    piece = message_store.Piece(part_index=1, part_type="text", offset=0, text=SECRET)
    message_store.append_journal(session_id=session_id, message_id=stub, pieces=[piece])
    return turn, stub, letter


def start_lone_call(record: Change, purpose: str, **parameters: str | None) -> str:
    """A question to a model in no turn: for a compaction, a preview or a file."""
    return turn_store.start_call(
        record,
        turn_id=None,
        message_id=None,
        purpose=purpose,
        model="demo",
        provider_model="demo",
        parameters=parameters,
        manifest=[],
        context_seq=1,
        digest="",
        estimated_tokens=1,
    )

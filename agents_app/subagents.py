"""The tools of a turn for other agents: it hands tasks to sub-agents and waits for their answers (LCM paper, ``Task`` and
``Tasks``), and sends messages to peers.

Each sub-agent is a session like any other, with its task as the first message and a turn of its own. It does not
outlive the call that launched it: whatever ends the waiting interrupts the turn. Permits are counted by depth, and only
a deeper sub-agent is ever waited for, so no wait is circular; a waiting turn holds no slot of its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec
from weakref import WeakKeyDictionary

from django.contrib.auth import get_user_model
from django.utils.translation import gettext_noop
from pydantic import BaseModel, ConfigDict

from agents_app.tools.registry import ToolContext, offered_tools, side_by_side, tool
from agents_app.turns import lifecycle, transactions
from agents_app.turns.claim import claim_turn
from agents_app.turns.runner import runner
from agents_app.turns.transactions import TurnEnd
from mnesis_core import errors
from mnesis_core.config import Config
from mnesis_core.events import EventType
from mnesis_core.messages import text_of
from mnesis_core.records import SUB_AGENT, SessionRecord, TurnRecord, TurnState, UsageRecord, is_id
from mnesis_core.text import excerpt
from mnesis_core.turns import inbox
from sessions_app.conf import session_config, site_config, without_instructions
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import Change, change
from sessions_app.record.hub import hub
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.record.session_queries import launched_by_turn, load_depth, load_session
from sessions_app.record.session_queries import list_peers as find_peers
from sessions_app.record.turn_queries import load_turn, open_turn

P = ParamSpec("P")
Kind = Literal["general", "explore"]
Answers = list[tuple[TurnRecord, str]]  # turns of sub-agents, and the last message of each
PeerMessageKind = Literal["message", "request", "response"]
logger = logging.getLogger(__name__)
LISTED_TITLE_CHARACTERS = 80  # characters of a title that are listed
CHILD_TITLE_CHARACTERS = 60  # characters of a session's title that is made from its task
# Semaphores by depth, for each event loop, since a semaphore belongs to one: a process has one loop, the tests many.
_PERMITS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parent:
    context: ToolContext
    session: SessionRecord
    config: Config
    delegator: inbox.Delegator


class Task(BaseModel):
    """One of several tasks: what to do, by whom, and a title of a few words."""

    model_config = ConfigDict(extra="forbid")

    prompt: str
    agent: Kind = "general"
    title: str = ""


@tool(timeout_seconds=None)
async def task(
    context: ToolContext,
    prompt: str,
    agent: Kind = "general",
    title: str = "",
    delegated_scope: str = "",
    kept_work: str = "",
) -> str:
    """Hand one task to a sub-agent with a context of its own, and get its answer: for what would fill yours.

    The prompt must say everything: the sub-agent does not see this conversation. Agent general has your tools, explore
    only those that read, and may expand summaries (lcm_expand) as every sub-agent may. If you are a sub-agent yourself,
    say in delegated_scope which part of your task you hand over, and in kept_work which part you keep.
    """
    handover = inbox.Handover(
        prompt=prompt, agent=inbox.AgentKind(agent), title=title, delegated_scope=delegated_scope, kept_work=kept_work
    )
    [(turn, text)] = await delegate(context, handover)
    if not text.strip() or turn.state not in (TurnState.COMPLETED, TurnState.INCOMPLETE):
        raise errors.DelegationFailed(_describe(turn, text))
    return _describe(turn, text)


@tool(timeout_seconds=None)
async def tasks(context: ToolContext, tasks: list[Task]) -> str:
    """Hand two tasks or more to sub-agents that work at the same time, and get all of their answers.

    For parts that do not need one another; each prompt must say everything. See the tool task.
    """
    handovers = [inbox.Handover(prompt=one.prompt, agent=inbox.AgentKind(one.agent), title=one.title) for one in tasks]
    answers = await delegate(context, *handovers, are_siblings=True)
    return "\n\n".join(f"## Task {number}\n{_describe(*answer)}" for number, answer in enumerate(answers, start=1))


def _describe(turn: TurnRecord, text: str) -> str:
    error = f", {turn.error_code}: {turn.error_message}" if turn.error_code else ""
    return f"{text or 'There is no answer.'}\n[sub-agent {turn.session_id}, its turn is {turn.state}{error}]"


@tool(scope="root")
async def send_message(
    context: ToolContext, to: str, text: str, kind: PeerMessageKind = "message", in_reply_to: str = ""
) -> str:
    """Send a message to another agent of the same user: to is its name, or the id of its session (list_peers lists them).

    It reads the message when it is idle; an answer comes into your inbox as a message of its own, after this turn has
    ended, so do not wait for it. Kind request asks for an answer, response gives one to the message in_reply_to names.
    """
    name = to.strip()

    def find_peer() -> SessionRecord:
        if is_id(name):
            found = [load_session(name, owner_id=context.owner_id)]
        else:
            found = find_peers(owner_id=context.owner_id, name=name)
        if not found:
            others = [peer for peer in find_peers(owner_id=context.owner_id) if peer.id != context.session_id]
            names = ", ".join(peer.peer_name for peer in others) or "none"
            raise errors.PeerNotFoundError(
                gettext_noop("no agent is called %(name)s; there are: %(names)s"),
                {"name": repr(name[:100]), "names": names},
                peer=name[:100],
            )
        if found[0].id == context.session_id:
            raise errors.InvalidRequest(gettext_noop("that is you yourself"), field="to")
        return found[0]

    session = await db(find_peer)
    draft = inbox.Draft(
        text=text,
        kind=inbox.MessageKind(kind),
        sender=context.session_id,
        sender_turn=context.turn_id,
        in_reply_to=in_reply_to.strip(),
    )
    message = await lifecycle.send_message(session.id, owner_id=context.owner_id, draft=draft)
    return f"Sent as {message.id} to {session.peer_name or session.id}."


@tool(read_only=True, scope="root")
def list_peers(context: ToolContext) -> str:
    """List the agents that take messages: name, session id, title and state."""
    lines = [
        f"{peer.peer_name}  {peer.id}  {peer.state}  {excerpt(peer.title, LISTED_TITLE_CHARACTERS)}{' (you)' if peer.id == context.session_id else ''}"
        for peer in find_peers(owner_id=context.owner_id)
    ]
    return "\n".join(lines) or "No agent takes messages."


async def launched(launch: Callable[P, TurnRecord], *args: P.args, **kwargs: P.kwargs) -> TurnRecord:
    """Return the turn that a function claims in a database thread. A turn claimed despite a cancellation is ended."""
    launching = asyncio.ensure_future(db(launch, *args, **kwargs))
    try:
        return await asyncio.shield(launching)
    except asyncio.CancelledError:
        # The thread goes on after a cancellation: what it claims must have an end, and not by its lease running out.
        try:
            turn = await launching
            await db(transactions.finish_turn, turn, TurnEnd(state=TurnState.CANCELLED), step=None, usage=UsageRecord())
        except Exception:
            # Not raised: an error in the place of a cancellation would let the interrupted turn go on.
            logger.info("a sub-agent was not launched, as its parent was interrupted", exc_info=True)
        raise


async def end_turn(turn: TurnRecord, *, owner_id: int) -> None:
    """End a sub-agent's turn, wherever it runs, and wait for its end if it runs here. Never raises."""

    def interrupt() -> None:
        found = open_turn(turn.session_id)
        if found is None or found[0] != turn.id:
            raise errors.SessionNotRunning(session_id=turn.session_id)
        lifecycle.interrupt(turn.session_id, owner_id=owner_id)

    try:
        await db(interrupt)
    except (errors.SessionNotRunning, errors.SessionNotFoundError):
        return
    except Exception:
        # Not raised, as in ``launched``; and here it can be ended without the database.
        logger.exception("the interrupt of sub-agent %s was not written", turn.session_id)
    runner.interrupt(turn.id)
    await runner.wait(turn.id)


def last_text(turn: TurnRecord) -> str:
    last = load_messages_by_ids(turn.message_ids[-1:], session_id=turn.session_id)
    said = [message for message in last if message.role == "assistant"]
    return "\n".join(text_of(tuple(stored.part for stored in message.parts)) for message in said)


async def delegate(context: ToolContext, *handovers: inbox.Handover, are_siblings: bool = False) -> Answers:
    """Hand each task to a sub-agent, all at the same time, and wait for their turns with what they said, in order.

    :param are_siblings: whether they divide the work, so that the turn need keep none of it
    :raises DelegationRefused: a task may not be handed over.
    :raises TimeoutError: an answer did not come in time; the sub-agents are interrupted.
    """

    def load_parent() -> _Parent:
        session = load_session(context.session_id, owner_id=context.owner_id)
        if not context.turn_id:
            raise errors.Conflict(gettext_noop("a task is handed over by a turn, and none is running here"))
        turn = load_turn(context.turn_id, session_id=session.id)
        question = load_messages_by_ids(turn.message_ids[:1], session_id=session.id)
        delegator = inbox.Delegator(
            depth=load_depth(session),
            own_task="\n".join(text_of(tuple(stored.part for stored in message.parts)) for message in question),
            launched=len(launched_by_turn(session.id, turn.id)),
        )
        return _Parent(context=context, session=session, config=session_config(session.config), delegator=delegator)

    parent = await db(load_parent)
    if are_siblings:
        inbox.check_siblings(parent.delegator, handovers, parent.config.delegation)
    else:
        inbox.check_handover(parent.delegator, handovers[0], parent.config.delegation)
    seconds = parent.config.delegation.timeout_seconds
    launching = asyncio.Lock()  # one after the other: sessions are listed in the order of their tasks
    try:
        with runner.release_slot(context.turn_id):
            async with asyncio.timeout(seconds):
                return await side_by_side(_run(parent, handover, launching) for handover in handovers)
    except TimeoutError:
        raise TimeoutError(f"There was no answer within {seconds:g} seconds; the sub-agents are interrupted.") from None


async def _run(parent: _Parent, handover: inbox.Handover, launching: asyncio.Lock) -> tuple[TurnRecord, str]:
    depth = parent.delegator.depth + 1
    permits = _PERMITS.setdefault(asyncio.get_running_loop(), {})
    async with permits.setdefault(depth, asyncio.Semaphore(site_config().turn.capacity)):
        async with launching:
            turn = await launched(_launch, parent, handover)
        with runner.release_slot(turn.id):
            runner.start(turn)
            try:
                ended = await _wait_for_end(parent, turn)
            except BaseException:
                await end_turn(turn, owner_id=parent.session.owner_id)
                raise

    def end() -> tuple[TurnRecord, str]:
        with change(parent.session.id) as record:
            _publish(record, EventType.DELEGATION_ENDED, parent, ended, state=ended.state)
            is_archived = record.archived
        if is_archived:  # since the turn began: what it launches afterwards belongs to it too
            lifecycle.archive_session(ended.session_id, owner_id=parent.session.owner_id)
        return ended, last_text(ended)

    return await db(end)


def _launch(parent: _Parent, handover: inbox.Handover) -> TurnRecord:
    owner = get_user_model().objects.get(pk=parent.session.owner_id)
    # The parent's configuration; an explorer has only those of its tools that read, now and at each of its turns.
    names, turn = parent.config.turn.tools, parent.session.config.get("turn", {})
    if handover.agent is inbox.AgentKind.EXPLORE:
        found = offered_tools(names, user_id=parent.session.owner_id, depth=parent.delegator.depth + 1)
        names = tuple(name for name, tool in found.items() if tool.read_only)
        turn = turn | {"read_only": True}
    config = without_instructions(parent.session.config) | {"turn": turn | {"tools": list(names)}}

    with change(parent.session.id) as record:
        # Checked again under the parent's lock: calls beside this one have launched some, or the turn has ended.
        turn_id = parent.context.turn_id
        if open_turn(parent.session.id) != (turn_id, TurnState.RUNNING):
            raise errors.Conflict(gettext_noop("the turn that hands this over has ended"))
        launched = len(launched_by_turn(parent.session.id, turn_id))
        inbox.check_room(replace(parent.delegator, launched=launched), 1, parent.config.delegation)
        child_id = session_store.create_session(
            owner=owner,
            model=parent.session.model,
            title=excerpt(handover.title or handover.prompt, CHILD_TITLE_CHARACTERS),
            agent=handover.agent.value,
            system_prompt=inbox.SYSTEM_PROMPT,
            config=config,
            parent_id=parent.session.id,
            parent_part_id=parent.context.part_id,
            origin=SUB_AGENT,
        )
        started = claim_turn(
            child_id, owner_id=parent.session.owner_id, message=handover.message(), lease_owner=runner.owner
        )
        _publish(record, EventType.DELEGATION_STARTED, parent, started.turn)
    return started.turn


async def _wait_for_end(parent: _Parent, turn: TurnRecord) -> TurnRecord:
    def publish(type: EventType, **values: Any) -> None:
        with change(parent.session.id) as record:
            _publish(record, type, parent, turn, **values)

    while True:
        now = await lifecycle.wait_turn(turn.session_id, turn.id, owner_id=parent.session.owner_id)
        if now.state != TurnState.SUSPENDED:
            return now
        # The parent's ledger says that its sub-agent waits for a person.
        await db(publish, EventType.DELEGATION_SUSPENDED, child_part_ids=[call.part_id for call in now.waits_for])
        with hub.follow(turn.session_id) as follower:
            while (await db(load_turn, turn.id, session_id=turn.session_id)).state == TurnState.SUSPENDED:
                await follower.news(seconds=lifecycle.LOOK_AGAIN_SECONDS)
        await db(publish, EventType.DELEGATION_RESUMED)


def _publish(record: Change, type: EventType, parent: _Parent, turn: TurnRecord, **values: Any) -> None:
    part_id = parent.context.part_id
    record.publish(type, part_id=part_id, child_id=turn.session_id, child_turn_id=turn.id, **values)

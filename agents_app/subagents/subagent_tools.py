"""The tools ``task``, ``tasks``, ``send_message`` and ``list_peers``: one session works with others of its owner.

They stand apart from the other tools because they start turns, which run tools; the app's start registers them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from agents_app.subagents.delegate import Answer, delegate, delegate_side_by_side
from agents_app.tools import ToolContext, tool
from agents_app.turns import lifecycle
from mnesis_core.errors import DelegationFailed, InvalidRequest, PeerNotFoundError
from mnesis_core.records import SessionRecord, TurnState
from mnesis_core.text import excerpt
from mnesis_core.turns.delegation import AgentKind, Handover
from mnesis_core.turns.inbox import Draft, MessageKind
from mnesis_core.values import is_id
from sessions_app.database.threads import db
from sessions_app.record.session_queries import list_peers as find_peers
from sessions_app.record.session_queries import load_session

Kind = Literal["general", "explore"]


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
    handover = Handover(
        prompt=prompt, agent=AgentKind(agent), title=title, delegated_scope=delegated_scope, kept_work=kept_work
    )
    answer = await delegate(context, handover)
    if not answer.text.strip() or answer.turn.state not in (TurnState.COMPLETED, TurnState.INCOMPLETE):
        raise DelegationFailed(_describe(answer))
    return _describe(answer)


@tool(timeout_seconds=None)
async def tasks(context: ToolContext, tasks: list[Task]) -> str:
    """Hand two tasks or more to sub-agents that work at the same time, and get all of their answers.

    For parts that do not need one another; each prompt must say everything. See the tool task.
    """
    handovers = [Handover(prompt=one.prompt, agent=AgentKind(one.agent), title=one.title) for one in tasks]
    answers = await delegate_side_by_side(context, handovers)
    return "\n\n".join(f"## Task {number}\n{_describe(answer)}" for number, answer in enumerate(answers, start=1))


def _describe(answer: Answer) -> str:
    turn = answer.turn
    error = f", {turn.error_code}: {turn.error_message}" if turn.error_code else ""
    return f"{answer.text or 'There is no answer.'}\n[sub-agent {answer.session_id}, its turn is {turn.state}{error}]"


TITLE = 80  # characters of a title that are listed
PeerMessageKind = Literal["message", "request", "response"]


@tool(scope="root")
async def send_message(
    context: ToolContext, to: str, text: str, kind: PeerMessageKind = "message", in_reply_to: str = ""
) -> str:
    """Send a message to another agent of the same user: to is its name, or the id of its session (list_peers lists them).

    It reads the message when it is idle; an answer comes into your inbox as a message of its own, after this turn has
    ended, so do not wait for it. Kind request asks for an answer, response gives one to the message in_reply_to names.
    """
    session = await db(_find_peer, to, context)
    draft = Draft(
        text=text,
        kind=MessageKind(kind),
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
        f"{peer.peer_name}  {peer.id}  {peer.state}  {excerpt(peer.title, TITLE)}{' (you)' if peer.id == context.session_id else ''}"
        for peer in find_peers(owner_id=context.owner_id)
    ]
    return "\n".join(lines) or "No agent takes messages."


def _find_peer(to: str, context: ToolContext) -> SessionRecord:
    """Return the session of the same owner that a name or an id stands for.

    :raises PeerNotFoundError: no session has this name; the message says which there are.
    """
    name = to.strip()
    if is_id(name):
        found = [load_session(name, owner_id=context.owner_id)]
    else:
        found = find_peers(owner_id=context.owner_id, name=name)
    if not found:
        others = [peer for peer in find_peers(owner_id=context.owner_id) if peer.id != context.session_id]
        names = ", ".join(peer.peer_name for peer in others) or "none"
        raise PeerNotFoundError(f"no agent is called {name[:100]!r}; there are: {names}", peer=name[:100])
    if found[0].id == context.session_id:
        raise InvalidRequest("that is you yourself", field="to")
    return found[0]

"""The tools ``send_message`` and ``list_peers``: a session in host mode talks to the other ones of its owner.

They stand apart from the other tools because a message calls the runner, which runs tools; the app's start registers them.
"""

from __future__ import annotations

from typing import Literal

from agents_app import lifecycle
from agents_app.tools import ToolContext, tool
from mnesis_core.errors import InvalidRequest, PeerNotFoundError
from mnesis_core.ids import is_id
from mnesis_core.inbox import Draft, MessageKind
from mnesis_core.record import SessionRecord
from mnesis_core.visible import excerpt
from sessions_app.database import db
from sessions_app.queries import list_peers as find_peers
from sessions_app.queries import load_session

TITLE = 80
"""Characters of a title that are listed."""
Kind = Literal["message", "request", "response"]


@tool(scope="root")
async def send_message(context: ToolContext, to: str, text: str, kind: Kind = "message", in_reply_to: str = "") -> str:
    """Send a message to another agent of the same user: to is its name, or the id of its session (list_peers lists them).

    It reads the message when it is idle; an answer comes into your inbox as a message of its own, after this turn has
    ended, so do not wait for it. Kind request asks for an answer, response gives one to the message in_reply_to names.
    """
    session = await db(_addressed, to, context)
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


def _addressed(to: str, context: ToolContext) -> SessionRecord:
    """The session that a name or an id stands for; one of the same owner.

    :raises PeerNotFoundError: no session has this name; the message says which there are.
    """
    wanted = to.strip()
    found = [load_session(wanted, owner_id=context.owner_id)] if is_id(wanted) else _named(wanted, context)
    if found[0].id == context.session_id:
        raise InvalidRequest("that is you yourself", field="to")
    return found[0]


def _named(name: str, context: ToolContext) -> list[SessionRecord]:
    found = find_peers(owner_id=context.owner_id, name=name)
    if not found:
        names = ", ".join(
            peer.peer_name for peer in find_peers(owner_id=context.owner_id) if peer.id != context.session_id
        )
        raise PeerNotFoundError(f"no agent is called {name[:100]!r}; there are: {names or 'none'}", peer=name[:100])
    return found

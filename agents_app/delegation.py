"""The tools ``task`` and ``tasks``: doors of delegation, as the REST calls are doors of turns.

They stand apart from the other tools because their story starts turns, which run tools; the app's start registers them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from agents_app.delegate import Answer, delegate, delegate_side_by_side
from agents_app.tools import ToolContext, tool
from mnesis_core.delegation import AgentKind, Handover
from mnesis_core.endings import DelegationFailed
from mnesis_core.record import TurnState

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
    return _said(await delegate(context, handover))


@tool(timeout_seconds=None)
async def tasks(context: ToolContext, tasks: list[Task]) -> str:
    """Hand two tasks or more to sub-agents that work at the same time, and get all of their answers.

    For parts that do not need one another; each prompt must say everything. See the tool task.
    """
    handovers = [Handover(prompt=one.prompt, agent=AgentKind(one.agent), title=one.title) for one in tasks]
    answers = await delegate_side_by_side(context, handovers)
    return "\n\n".join(f"## Task {number}\n{_told(answer)}" for number, answer in enumerate(answers, start=1))


def _said(answer: Answer) -> str:
    if not answer.text.strip() or answer.turn.state not in (TurnState.COMPLETED, TurnState.INCOMPLETE):
        raise DelegationFailed(_told(answer))
    return _told(answer)


def _told(answer: Answer) -> str:
    """An answer, and where it comes from; of a turn that did not end well, what is known of its end."""
    turn = answer.turn
    error = f", {turn.error_code}: {turn.error_message}" if turn.error_code else ""
    return f"{answer.text or 'There is no answer.'}\n[sub-agent {answer.session_id}, its turn is {turn.state}{error}]"

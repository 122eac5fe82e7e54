"""What a turn may hand to sub-agents, so that every delegation ends (LCM paper, "scope-reduction guard"; decision 24).

Three things make it end, each alone enough against one way of going on for ever: sub-agents stand at most so deep,
a turn launches at most so many, and one that hands a single task on must keep a part of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mnesis_core.config import DelegationConfig
from mnesis_core.errors import DelegationRefused, InvalidRequest
from mnesis_core.search import fold

SYSTEM_PROMPT = """You are a sub-agent: another agent's turn has launched you for one task, which the first message states.
You see nothing of its conversation except that message; lcm_grep, lcm_describe, lcm_read and lcm_expand reach the rest.
Nobody can answer questions. Work until the task is done, then answer: only your last message goes back.
Say there what you found, with the ids of messages, summaries and files that it rests on, and what you could not do."""

_NOTHING = {
    "",
    "nothing",
    "none",
    "no",
    "n a",
    "na",
    "nil",
    "null",
    "no work",
    "nothing else",
    "not applicable",
    "all",
    "everything",
}
"""What a model writes that keeps nothing, without accents, signs and capitals."""


_YOURS, _NOT_YOURS = "\n\nYour part: ", "\n\nNot your part, since it is done by who asks: "
"""How a sub-agent is told its scope, beneath its prompt."""


class AgentKind(StrEnum):
    """What a sub-agent may do."""

    GENERAL = "general"
    """What its parent may."""
    EXPLORE = "explore"
    """Only read: tools that change nothing. It can delegate nothing, so the guard lets it pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """One task for a sub-agent, and what whoever hands it over says of its own."""

    prompt: str
    agent: AgentKind = AgentKind.GENERAL
    title: str = ""
    delegated_scope: str = ""
    kept_work: str = ""

    def message(self) -> str:
        """The sub-agent's first message."""
        scope, kept = self.delegated_scope.strip(), self.kept_work.strip()
        yours = f"{_YOURS}{scope}" if scope else ""
        not_yours = f"{_NOT_YOURS}{kept}" if kept else ""
        return f"{self.prompt.strip()}{yours}{not_yours}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegator:
    """Who hands over."""

    depth: int
    """0 for a person's own session, 1 for its sub-agents."""
    own_task: str
    """What the running turn was asked: the whole message."""
    launched: int
    """Sub-agents that the turn has launched before."""

    @property
    def whole_tasks(self) -> set[str]:
        """Every way to say all of the own task: the message, its prompt, and the scope that it was handed; as words."""
        before, _, _ = self.own_task.partition(_NOT_YOURS)
        prompt, _, scope = before.partition(_YOURS)
        return {_words(text) for text in (self.own_task, before, prompt, scope)} - {""}


def check_handover(delegator: Delegator, handover: Handover, config: DelegationConfig) -> None:
    """Whether one task may be handed over: by anybody to an explorer, by a person's own session, or with a part kept.

    :raises DelegationRefused: it may not; the message says what to do instead.
    """
    _check_asked([handover])
    check_room(delegator, 1, config)
    if delegator.depth == 0 or handover.agent is AgentKind.EXPLORE:
        return
    if not _says_something(handover.delegated_scope) or not _says_something(handover.kept_work):
        raise DelegationRefused(
            "You are a sub-agent yourself: say in delegated_scope which part you hand over, and in kept_work which part of "
            "your own task you keep. If you would hand over all of it, do it yourself."
        )
    if delegator.whole_tasks & {_words(handover.prompt), _words(handover.delegated_scope)}:
        raise DelegationRefused("This is your whole task. Hand over a smaller part of it, or do it yourself.")


def check_siblings(delegator: Delegator, handovers: Sequence[Handover], config: DelegationConfig) -> None:
    """Whether several tasks may be handed over side by side: they divide the work, so nothing need be kept.

    :raises InvalidRequest: they are not at least two.
    :raises DelegationRefused: they may not; the message says what to do instead.
    """
    if len(handovers) < 2:
        raise InvalidRequest("tasks takes two tasks or more; task takes one", field="tasks")
    _check_asked(handovers)
    check_room(delegator, len(handovers), config)
    asked = [_words(handover.prompt) for handover in handovers]
    if len(set(asked)) < len(asked):
        raise DelegationRefused("Two of the tasks are the same. Say in each what the others do not do.")
    if delegator.depth > 0 and delegator.whole_tasks & {*asked}:
        raise DelegationRefused("One of the tasks is your whole task. Divide it, or do it yourself.")


def check_room(delegator: Delegator, count: int, config: DelegationConfig) -> None:
    """Whether so many more sub-agents may be launched, at this depth and by this turn.

    :raises DelegationRefused: they may not.
    """
    check_depth(delegator.depth, config)
    if count > config.max_siblings:
        raise DelegationRefused(f"At most {config.max_siblings} tasks at a time (delegation.max_siblings).")
    if delegator.launched + count > config.max_children:
        raise DelegationRefused(
            f"A turn launches at most {config.max_children} sub-agents (delegation.max_children), and this one has "
            f"launched {delegator.launched}. Go on with what they answered."
        )


def check_depth(depth: int, config: DelegationConfig) -> None:
    """Whether a session that stands so deep may have sub-agents below it: whatever they hand on comes to an end.

    :raises DelegationRefused: it may not.
    """
    if depth >= config.max_depth:
        raise DelegationRefused(
            f"Sub-agents stand at most {config.max_depth} deep (delegation.max_depth), and you are there. Do it yourself."
        )


def _check_asked(handovers: Sequence[Handover]) -> None:
    if not all(_words(handover.prompt) for handover in handovers):
        raise InvalidRequest("prompt is empty", field="prompt")


def _says_something(text: str) -> bool:
    return _words(text) not in _NOTHING


def _words(text: str) -> str:
    return " ".join(fold(text).split())

"""The guard that makes every delegation to sub-agents end (LCM paper, "scope-reduction guard"; decision 24).

Three rules, each against one way to delegate endlessly: the depth of sub-agents is limited, so is the number that a turn
launches, and a sub-agent that hands a single task on must keep a part of its own.
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

# What a model writes when it keeps nothing, without accents, signs and capitals.
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


# How a sub-agent's scope is stated beneath its prompt.
_YOURS, _NOT_YOURS = "\n\nYour part: ", "\n\nNot your part, since it is done by who asks: "


class AgentKind(StrEnum):
    # May do what its parent may.
    GENERAL = "general"
    # May only use tools that change nothing. It cannot delegate, so the guard lets it pass.
    EXPLORE = "explore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    prompt: str
    agent: AgentKind = AgentKind.GENERAL
    title: str = ""
    delegated_scope: str = ""
    kept_work: str = ""

    def message(self) -> str:
        scope, kept = self.delegated_scope.strip(), self.kept_work.strip()
        yours = f"{_YOURS}{scope}" if scope else ""
        not_yours = f"{_NOT_YOURS}{kept}" if kept else ""
        return f"{self.prompt.strip()}{yours}{not_yours}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegator:
    # 0 for a person's own session, 1 for its sub-agents.
    depth: int
    # The whole message that began the turn.
    own_task: str
    # Sub-agents that the turn has launched before.
    launched: int

    @property
    def whole_tasks(self) -> set[str]:
        """Return the forms of the turn's whole task, as words: the message, its prompt, and the delegated scope."""
        before, _, _ = self.own_task.partition(_NOT_YOURS)
        prompt, _, scope = before.partition(_YOURS)
        return {_words(text) for text in (self.own_task, before, prompt, scope)} - {""}


def check_handover(delegator: Delegator, handover: Handover, config: DelegationConfig) -> None:
    """Check that one task may be handed over: to an explorer, by a person's own session, or with a part kept.

    :raises DelegationRefused: it may not; the message says what to do instead
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
    """Check that several tasks may be handed over side by side. They divide the work, so nothing need be kept.

    :raises InvalidRequest: there are fewer than two
    :raises DelegationRefused: they may not; the message says what to do instead
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
    """Check that the turn may launch ``count`` more sub-agents at its depth.

    :raises DelegationRefused: it may not
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
    """Check that a session at this depth may have sub-agents, so that delegation ends.

    :raises DelegationRefused: it may not
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

"""Questions about a session that was lived: what each policy's prompt shows, what the memory tool tells, what a model answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.utils import timezone

from agents_app.tools.memory.grepping import Asked, grep
from agents_app.tools.memory.reach import Family, load_family
from agents_app.tools.registry import ToolContext
from compaction_app.context.retrieval import retrieve
from compaction_app.context.state import ContextState
from mnesis_core.compaction.evaluation.measures import (
    DEPTHS,
    Measurement,
    Outcome,
    Policy,
    Question,
    has_answer,
    misleads,
    said_in,
)
from mnesis_core.compaction.evaluation.policies import Sent, roll, send_full, send_rolling, send_truncated
from mnesis_core.compaction.requests import cleaned, failure_of, reply_limit
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.context.entries import MessageEntry
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import Model, Reply, Request, Usage, complete, cost_micros
from mnesis_core.llm.tokens import estimate_message
from mnesis_core.messages import StoredMessage, StoredPart, TextPart, ToolPart
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.providers.rendering import render
from mnesis_core.records import new_id
from sessions_app.conf import get_model
from sessions_app.database.threads import waiting_for
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls

MOST_ROWS = 1_000_000
_HANDLE = re.compile(r"^[> ] #(\d+) ", re.MULTILINE)


@dataclass(slots=True, kw_only=True)
class Spending:
    calls: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int | None = 0

    def add(self, tokens_input: int, tokens_output: int, cost: int | None) -> None:
        self.calls += 1
        self.tokens_input += tokens_input
        self.tokens_output += tokens_output
        self.cost_micros = None if cost is None or self.cost_micros is None else self.cost_micros + cost


def told_numbers(family: Family, question: str, *, limit: int) -> frozenset[int]:
    """Return the numbers of the messages that ``lcm_grep`` tells a model that asks this; none if it holds no word."""
    try:
        text = grep(family, Asked(pattern=question, limit=limit))
    except InvalidRequest:
        return frozenset()
    return numbers_in(text)


def numbers_in(told: str) -> frozenset[int]:
    """Return the numbers of the messages that an answer of ``lcm_grep`` tells."""
    return frozenset(map(int, _HANDLE.findall(told)))


@dataclass(kw_only=True)
class Asker:
    """Asks the questions of one session after it was lived."""

    conversation: str
    owner_id: int
    window: int
    model: str  # as the site calls it; the session's has the window in its name
    state: ContextState
    questions: Sequence[Question]
    answers: bool
    spending: Spending = field(default_factory=Spending)

    def measure(self, policy: Policy, progress: Callable[[int], None]) -> Measurement:
        self.spending = Spending()
        prompt_of = self._prompts_of(policy)
        outcomes, fits = [], True
        for number, question in enumerate(self.questions):
            said = self._message(question.text)
            sent = prompt_of(question, said)
            fits = fits and sent.tokens <= self.state.budget.usable
            outcomes.append(self._outcome(policy, number, sent, said.id))
            progress(number + 1)
        spent = self.spending
        return Measurement(
            conversation=self.conversation,
            model=self.model,
            window=self.window,
            policy=policy,
            fits=fits,
            outcomes=tuple(outcomes),
            calls=spent.calls,
            tokens_input=spent.tokens_input,
            tokens_output=spent.tokens_output,
            cost_micros=spent.cost_micros,
        )

    def _prompts_of(self, policy: Policy) -> Callable[[Question, StoredMessage], Sent]:
        usable = self.state.budget.usable
        if policy == "truncation":
            return lambda question, said: send_truncated(self._messages, said, usable)
        if policy == "full":
            return lambda question, said: send_full(self._messages, said)
        if policy == "mnesis":
            for call in list_calls(self.state.session.id, limit=MOST_ROWS):
                usage = call.usage
                self.spending.add(usage.tokens_input or 0, usage.tokens_output or 0, usage.cost_micros)
            return self._assembled
        spec, config = self.state.summariser(), self.state.config
        model = get_model(spec.alias, user_id=None)

        def ask(payload: dict[str, Any], target: int) -> str | None:
            reply = self._reply(model, Request(payload=payload, max_output_tokens=reply_limit(spec, target)))
            return None if failure_of(reply) else cleaned(reply.text)

        longest = config.compaction.summary_target_tokens
        left = roll(self._messages, self.state.budget, piece_limit(spec, config), longest, ask)
        return lambda question, said: send_rolling(left, said, usable)

    def _assembled(self, question: Question, said: StoredMessage) -> Sent:
        """Return the prompt of a turn that begins with this question. Tools are in no policy's prompt."""
        state = replace(self.state, entries=[*self.state.entries, MessageEntry(position=said.seq, message=said)])
        built = state.assemble(passages=retrieve(self.state, question.text, question=said))
        return Sent(prompt=built, tokens=built.used_tokens)

    def _outcome(self, policy: Policy, number: int, sent: Sent, question_id: str) -> Outcome:
        question = self.questions[number]
        text = said_in(sent.prompt.messages, without=question_id)
        evidence, recalled = frozenset(question.evidence), list[float]()
        for depth in DEPTHS if policy == "mnesis" and evidence else ():
            told = told_numbers(self._family, question.text, limit=depth)
            recalled.append(len(evidence & told) / len(evidence))
        is_answered = None
        if self.answers and question.answer and sent.tokens <= self.state.budget.usable:
            limit = self.state.budget.reserved_output
            reply = self._reply(self._asked_model, Request(payload=render(sent.prompt), max_output_tokens=limit))
            is_answered = bool(has_answer(reply.text, question))
        return Outcome(
            question=number,
            is_present=has_answer(text, question),
            is_outdated=misleads(text, question),
            prompt_tokens=sent.tokens,
            recalled=tuple(recalled),
            is_answered=is_answered,
        )

    def _reply(self, model: Model, request: Request) -> Reply:
        reply = waiting_for(_complete, own_loop=True)(model, request)
        usage: Usage = reply.usage
        cost = cost_micros(model.spec, usage)
        self.spending.add(usage.input_tokens, usage.output_tokens, cost)
        return reply

    @cached_property
    def _asked_model(self) -> Model:
        return get_model(self.state.session.model, user_id=None)

    @cached_property
    def _family(self) -> Family:
        return load_family(ToolContext(session_id=self.state.session.id, owner_id=self.owner_id))

    @cached_property
    def _messages(self) -> list[StoredMessage]:
        """Return what was said, also the outputs of tools that Mnesis has replaced by tombstones."""
        return [
            replace(message, parts=tuple(map(_original, message.parts)))
            for message in load_messages(self.state.session.id, limit=MOST_ROWS)
        ]

    def _message(self, text: str) -> StoredMessage:
        parts = (TextPart(text=text),)
        tokens = estimate_message(parts)
        return StoredMessage(
            id=new_id("msg"),
            seq=(self._messages[-1].seq if self._messages else 0) + 1,
            turn_id=None,
            role="user",
            parts=(StoredPart(id=new_id("part"), index=0, part=parts[0], token_estimate=tokens),),
            created_at=timezone.now(),
            token_estimate=tokens,
        )


async def _complete(model: Model, request: Request) -> Reply:
    try:
        return await complete(model, request)
    finally:
        await close_connections()


def _original(stored: StoredPart) -> StoredPart:
    part = stored.part
    return replace(stored, part=replace(part, compacted_at=None)) if isinstance(part, ToolPart) else stored

"""Requests through the gateway: which session each belongs to, what of it is new, and the one call that passes it on.

The client's bytes are what a model is asked with, so nothing here makes a prompt. A turn is recorded as any other: it is
claimed with the new messages, suspended while the client runs tools, and resumed with their results.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext_noop

from agents_app.turns import claim, transactions
from agents_app.turns.branches import continue_after
from agents_app.turns.runner import runner
from agents_app.turns.transactions import (
    CANCELLED,
    STATE_OF,
    Answer,
    OpenCall,
    PreparedResult,
    Progress,
    Step,
    TurnEnd,
    load_progress,
    patiently,
    prepare_result,
    write_result,
)
from mnesis_core import errors
from mnesis_core.config import Config
from mnesis_core.context.branches import ROOT
from mnesis_core.context.fitting import Size
from mnesis_core.llm import interface as llm
from mnesis_core.llm.retrying import Patience
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import Message, ToolState, text_of
from mnesis_core.providers.passing import Exchange, PassedOn, Target
from mnesis_core.records import GATEWAY, SessionRecord, TurnRecord, TurnState, UsageRecord, add_usage, new_id
from mnesis_core.spending import Spent
from mnesis_core.text import text_digest
from mnesis_core.turns.gateway import (
    ASSISTANT,
    USER,
    GatewayRequest,
    Known,
    News,
    Said,
    Written,
    body_digest,
    difference,
    find_news,
    known_from,
    own_words,
    response_data,
    to_write,
)
from mnesis_core.turns.options import usage_record
from mnesis_core.turns.requests import NEW
from sessions_app.conf import session_config
from sessions_app.database.threads import db, shielded
from sessions_app.llm.calls import ModelCaller, PlannedCall, RunningCall
from sessions_app.llm.limits import SpendingLimit, TurnSpending, limits_for
from sessions_app.record import message_queries, message_store, session_store, turn_store
from sessions_app.record.branch_queries import path_in
from sessions_app.record.change import Change, change
from sessions_app.record.hub import hub
from sessions_app.record.message_queries import load_messages, prepare_parts
from sessions_app.record.session_queries import find_imported, gateway_family, load_session, newest_through_gateway
from sessions_app.record.turn_queries import find_beginnings, load_last_body, load_turn

logger = logging.getLogger(__name__)
RECENT = 400  # messages of the record that a request is compared with where it begins unlike any before it
MOST_LATER = 10_000  # messages after a beginning that is known
HERE = "here"  # the message that a known beginning ends with
RACES = 20  # changes of a session between reading and claiming it, after which a request is refused
HOLD_SECONDS = 2.0  # the end of an answer waits so long for the record
MOST_REMEMBERED = 20_000  # beginnings, of about 200 bytes
# The client's context is its own: nothing is compacted, no tool is offered, no facts come from other sessions.
CONFIG = {"turn": {"tools": []}, "compaction": {"auto": False}, "retrieval": {"max_held_facts": 0}}
NO_PATIENCE = Patience(max_retries=0, base_seconds=0.0, longest_seconds=0.0)  # The client asks again where it wants to.


class _Changed(Exception):
    """The session has changed since it was read."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a beginning of requests ends in the record: what comes after this message on the branch came after it."""

    session_id: str
    seq: int
    branch: int


class _Memory:
    """What this process has seen lately, so that a request with a long history is not compared with the whole record.

    The record never changes what it has, so what is here stays true; without it the same is read.
    """

    def __init__(self) -> None:
        self._spots: OrderedDict[str, Spot] = OrderedDict()

    def keep(self, digest: str, spot: Spot) -> None:
        self._spots[digest] = spot
        self._spots.move_to_end(digest)
        if len(self._spots) > MOST_REMEMBERED:
            self._spots.popitem(last=False)

    def find(self, digests: Sequence[str], session_ids: Sequence[str] | None) -> tuple[int, Spot] | None:
        for place in range(len(digests) - 1, -1, -1):
            spot = self._spots.get(digests[place])
            if spot is not None and (session_ids is None or spot.session_id in session_ids):
                return place + 1, spot
        return None


memory = _Memory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What goes on to the provider."""

    request: GatewayRequest
    spec: llm.ModelSpec
    target: Target
    body: str
    exchange: Exchange


def place(passed: Passed, *, session: str, owner: AbstractBaseUser, program: str) -> GatewayCall:
    """Find the session of a request, or make one, and claim it for a turn with what is new and the call that begins.

    A request that comes while the session answers another one is recorded in a child of it.

    :param session: the id that the client's header names, ``new``, or nothing
    :raises SessionNotFoundError: there is no such session, or it belongs to another person.
    """
    request = passed.request
    digests = request.beginnings(owner.pk)
    for _ in range(RACES):
        found = _find(request, digests, session=session, owner=owner)
        if found is None:
            made = _make(request, owner=owner, program=program, parent=None, name=_name_of(request, session))
            found = None if made is None else _Found(session=made)
        if found is None:
            continue  # another request of the same name was faster
        try:
            return _claim(passed, digests, found, owner=owner)
        except _Changed:
            continue
    raise errors.Conflict(gettext_noop("this session changes too fast"), session_id=session)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    session: SessionRecord
    known: int = 0  # messages of the request that are known to be there
    spot: Spot | None = None


def _find(request: GatewayRequest, digests: Sequence[str], *, session: str, owner: AbstractBaseUser) -> _Found | None:
    root: SessionRecord | None = None
    if not session and request.after and (spot := _after_answer(request.after, owner.pk)):
        return _Found(session=load_session(spot.session_id, owner_id=owner.pk), spot=spot)
    if session not in ("", NEW):
        root = load_session(session, owner_id=owner.pk)
    elif name := _name_of(request, session):
        root = find_imported(owner_id=owner.pk, origin=GATEWAY, external_id=name)
        if root is None:
            return None
    if root is None and session == NEW:
        return None
    family = None if root is None else gateway_family(root.id)
    for known, spot in _beginnings(digests, owner.pk, family):
        try:
            its = load_session(spot.session_id, owner_id=owner.pk)
        except errors.SessionNotFoundError:
            continue
        if _is_same(request, known, its, spot, is_named=root is not None):
            return _Found(session=its, known=known, spot=spot)
    if (
        root is None
        or not root.message_seq
        or (request.has_system_prompt(root.system_prompt) and not root.running_turn_id)
    ):
        return None if root is None else _Found(session=root)
    return _Found(session=_child(request, owner, root))


def _after_answer(response_id: str, owner_id: int) -> Spot | None:
    """Return where the answer ends that a provider calls so, if it is in one of the owner's newest sessions."""
    newest = newest_through_gateway(owner_id, limit=RECENT)
    found = message_queries.find_answer(newest, response_data(response_id))
    return Spot(*found) if found else None


def _beginnings(digests: Sequence[str], owner_id: int, family: Sequence[str] | None) -> Iterator[tuple[int, Spot]]:
    """Yield where the longest known beginning of a request ends, the newest of several first."""
    seen = memory.find(digests, family)
    if seen is not None:
        yield seen
    for begun in find_beginnings(digests, owner_id=owner_id, session_ids=family):
        end = message_queries.end_of_request(begun.turn_id)
        if end is not None:
            yield digests.index(begun.digest) + 1, Spot(begun.session_id, *end)


def _is_same(request: GatewayRequest, known: int, its: SessionRecord, spot: Spot, *, is_named: bool) -> bool:
    """Return whether a request that begins as one of a session did is of the same conversation."""
    if any(said.role == ASSISTANT for said in request.said[:known]):
        return True
    is_alike = request.has_system_prompt(its.system_prompt)
    if is_named and is_alike:
        return True
    answers = {one.key for one in known_from(load_messages(its.id, after=spot.seq, limit=RECENT))}
    # A client that has the answer goes on with it, even if its system prompt names another day by now.
    if any(said.role == ASSISTANT and said.key in answers for said in request.said[known:]):
        return True
    # Programs ask beside a conversation, too: what its title is, whether a command is safe. Without a name, the same
    # first question is another conversation, unless it has no answer yet.
    return is_alike and not answers and its.running_turn_id is None


def _name_of(request: GatewayRequest, session: str) -> str:
    return f"{request.protocol}:{text_digest(request.name)}" if request.name and not session else ""


def _make(
    request: GatewayRequest, *, owner: AbstractBaseUser, program: str, parent: SessionRecord | None, name: str = ""
) -> SessionRecord | None:
    labels = {"door": str(request.protocol), **({"program": program} if program else {})}
    if parent is not None:
        labels["link"] = "sub_agent"
    try:
        session_id = session_store.create_session(
            owner=owner,
            model=request.model,
            system_prompt=request.system,
            labels=labels,
            config=CONFIG,
            parent_id=None if parent is None else parent.id,
            origin=GATEWAY,
            external_id=name,
        )
    except errors.DuplicateIDError:
        return None
    return load_session(session_id)


def _child(request: GatewayRequest, owner: AbstractBaseUser, parent: SessionRecord) -> SessionRecord:
    made = _make(request, owner=owner, program=parent.labels.get("program", ""), parent=parent)
    assert made is not None  # noqa: S101 - it has no name that another one could have
    return made


def _claim(passed: Passed, digests: Sequence[str], found: _Found, *, owner: AbstractBaseUser) -> GatewayCall:
    request, session = passed.request, found.session
    if session.running_turn_id:
        claim.close_dead_turn(session, runner.owner)
        session = load_session(session.id)
    open_turn = load_turn(session.running_turn_id, session_id=session.id) if session.running_turn_id else None
    news = _news(request, found, session)
    is_beside = open_turn is not None and open_turn.state == TurnState.RUNNING
    if is_beside:
        session, open_turn = _child(request, owner, session), None
        news = replace(news, after="")
    written, config = to_write(news.said), session_config(session.config)
    inline = config.turn.tool_output_inline
    results = [
        (said, prepare_result(said.text, is_error=said.is_error, inline=inline, owner_id=owner.pk))
        for said in written.results
    ]
    prepared = [(message, prepare_parts(message.parts)) for message in written.now]
    kept = keep_body(session.id, passed.body)
    with change(session.id) as record:
        if record.event_seq != session.event_seq:
            raise _Changed
        record.is_idle = not session.running_turn_id  # as it was read, since nothing has changed
        waiting = _write_results(record, results, open_turn)
        # It resumes a turn that it brings all for which that waits, if nothing in it begins another one.
        is_whole = not waiting and not written.earlier and not news.after
        if open_turn is not None and open_turn.waits_for and is_whole:
            turn, is_resumed = _resume(record, open_turn, config), True
        else:
            turn, is_resumed = _begin(record, open_turn, session, request, news, written, digests, config), False
        for message, parts in prepared:
            message_store.append_message(record, turn_id=turn.id, message=message, parts=parts)
        asked = (text_of(message.parts) for message in written.now if message.role == USER)
        claim.title_from_message(record, session, next(filter(own_words, asked), ""))
        spot = Spot(session.id, record.message_seq, record.branch)
        call = GatewayCall(passed, session=session, turn=turn, is_resumed=is_resumed, kept=kept)
        call.write(record)
    if digests and not is_beside:
        memory.keep(digests[-1], spot)
    return call


def _news(request: GatewayRequest, found: _Found, session: SessionRecord) -> News:
    if found.spot is None:
        recent = load_messages(session.id, limit=RECENT, newest=True, path=path_in(session))
        return find_news(request.said, list(known_from(recent)))
    spot = found.spot
    path = path_in(session, spot.branch) if session.branch_seq else None
    later = load_messages(session.id, after=spot.seq, limit=MOST_LATER, path=path)
    # A request that names the answer which it continues repeats nothing of what came before.
    rest = request.said[found.known - 1 :] if found.known else (Said(role=ASSISTANT), *request.said)
    news = find_news(rest, [Known(rest[0].key, HERE), *known_from(later)])
    after = news.after
    if not after and session.branch != spot.branch:
        after = later[-1].id if later else HERE
    if after == HERE:
        last = load_messages(session.id, before=spot.seq + 1, limit=1, newest=True, path=path)
        after = last[0].id if last else ROOT
    return replace(news, after=after)


def _write_results(
    record: Change, results: Sequence[tuple[Said, PreparedResult]], open_turn: TurnRecord | None
) -> set[str]:
    """Write the results that calls of the session wait for; return the parts that still wait.

    One for a call that was closed is kept beside it; one that the call has, or of no call, is in the bytes of the request.
    """
    waiting = {one.tool_call_id: one.part_id for one in open_turn.waits_for} if open_turn else {}
    for said, prepared in results:
        part_id = waiting.pop(said.call_id, "")
        if part_id:
            write_result(record, part_id, prepared)
            continue
        closed = message_queries.find_calls(record.session_id, said.call_id, state=ToolState.ERROR)
        for part_id in closed[:1]:
            message_store.keep_late_output(record, part_id, said.text)
    return set(waiting.values())


def _resume(record: Change, turn: TurnRecord, config: Config) -> TurnRecord:
    seconds = config.turn.lease_seconds
    turn_store.resume_turn(record, turn.id, fence=turn.fence, lease_owner=runner.owner, lease_seconds=seconds)
    return replace(turn, fence=turn.fence + 1, state=TurnState.RUNNING)


def _begin(
    record: Change,
    open_turn: TurnRecord | None,
    session: SessionRecord,
    request: GatewayRequest,
    news: News,
    written: Written,
    digests: Sequence[str],
    config: Config,
) -> TurnRecord:
    if open_turn is not None:  # its results do not come: the client went on without them
        usage = load_progress(open_turn).usage
        ends = {"before": TurnState.SUSPENDED, "fence": open_turn.fence, "usage": usage}
        transactions.close_turn(record, open_turn.id, CANCELLED, **ends)
    if news.after:
        continue_after(record, news.after)
    if written.earlier:
        claim.write_ended_turn(record, request.model, [(message, None) for message in written.earlier])
    return turn_store.claim_turn(
        record,
        model=request.model,
        lease_owner=runner.owner,
        lease_seconds=config.turn.lease_seconds,
        request_digest=digests[-1] if digests else "",
        origin=GATEWAY,
    )


async def start(
    request: GatewayRequest,
    *,
    session: str,
    owner: AbstractBaseUser,
    program: str,
    aim: Callable[[], tuple[llm.ModelSpec, Target]],
) -> GatewayCall:
    """Record what is new in a request and pass it on, without waiting for the answer.

    :param aim: finds the model and the address of the provider; called in the thread that records
    :raises MnesisError: the record does not take it, as for any turn; nothing is passed on.
    """
    exchange = Exchange()  # it belongs to this loop

    def place_aimed() -> GatewayCall:
        spec, target = aim()
        body = request.text if request.model == _name_at(spec) else request.with_model(_name_at(spec))
        passed = Passed(request=request, spec=spec, target=target, body=body, exchange=exchange)
        return place(passed, session=session, owner=owner, program=program)

    async def place_and_start() -> GatewayCall:
        with runner.permit(owner.pk):
            call = await db(place_aimed)
            runner.start(call.turn, owner_id=owner.pk, is_resumed=call.is_resumed, passing=call)
        return call

    return await shielded(place_and_start())


async def pass_bytes(request: GatewayRequest, spec: llm.ModelSpec, target: Target, exchange: Exchange) -> None:
    """Pass a request on without a record of it. Never raises: what goes wrong is told to the client."""
    body = request.with_model(_name_at(spec)).encode()
    model = PassedOn(
        spec, protocol=request.protocol, target=target, body=body, exchange=exchange, prompt_tokens=len(body) // 4
    )
    reply = await llm.complete(model, llm.Request(payload={}, max_output_tokens=spec.max_output_tokens))
    exchange.close(reply.error)


def _name_at(spec: llm.ModelSpec) -> str:
    """Return the name of a model at its provider."""
    return spec.litellm_model.partition("/")[2].removeprefix("responses/")


class GatewayCall(ModelCaller[tuple[llm.Reply, list[OpenCall]]]):
    """The one call of a request through the gateway; its answer is read on its way to the client."""

    patience = NO_PATIENCE

    def __init__(
        self, passed: Passed, *, session: SessionRecord, turn: TurnRecord, is_resumed: bool, kept: KeptBody
    ) -> None:
        self.session, self.turn, self.turn_id = session, turn, turn.id
        self.is_resumed = is_resumed
        self.spending = TurnSpending(limits_for(session, turn=turn))
        self.config = session_config(session.config)
        self.spec = llm.spec_in_place(passed.spec, self.config)
        self.exchange = passed.exchange
        self.step: Step | None = None
        self.progress = Progress()
        self.shared_ratio: float | None = None
        self._passed, self._kept = passed, kept
        self._begun: RunningCall | errors.BudgetExhausted | None = None

    def write(self, record: Change) -> None:
        """Write the start of the call in the change that claims its turn, or remember which limit refuses it."""
        planned = self._plan()
        try:
            self._begun = self.start_in(record, self.limits(planned.highest), planned)
        except errors.BudgetExhausted as refusal:
            self._begun = refusal  # the turn stays, and ends with it

    # What a running turn is asked (``loop.run_turn``).

    async def take_step(self) -> TurnEnd | None:
        """Pass the request on, and record what came of it; ``None``: the client runs tools, and the turn waits."""
        async with self.spending.hard_stop():
            reply, calls = await self.ask_model()
        if not calls:
            return TurnEnd.of(STATE_OF[reply.outcome], reply.error)
        state = await patiently(transactions.suspend_turn, self.turn)
        return None if state is TurnState.SUSPENDED else CANCELLED

    async def usage(self) -> UsageRecord:
        """Return what the turn has used in its earlier requests and in this one, as far as it has ended."""
        if not self.is_resumed:
            return self.progress.usage
        running = self.step.message_id if self.step is not None else ""
        turn = await patiently(load_turn, self.turn.id, session_id=self.session.id)
        ids = tuple(id for id in turn.message_ids if id != running)
        return (await patiently(load_progress, replace(turn, message_ids=ids))).usage

    def context_now(self) -> tuple[Any, Size] | None:
        return None  # the context is the client's: nothing here is compacted

    def refuse(self, end: TurnEnd) -> None:
        """Tell the client why no answer has begun, where none has."""
        if not self.exchange.has_begun:
            about = {"turn_id": self.turn.id, "session_id": self.session.id}
            self.exchange.close(errors.error_of(end.error_code or "", end.error_message or "", **about))

    def close(self, end: TurnEnd | None) -> None:
        """Pass on the end of the answer: it is recorded, or cannot be."""
        self.exchange.close()

    # What a model's call is made of (``ModelCaller``).

    async def begin(self) -> RunningCall:
        if isinstance(self._begun, errors.BudgetExhausted):
            raise self._begun
        assert self._begun is not None  # noqa: S101 - it is written with the claim of its turn
        return self._begun

    async def plan(self) -> PlannedCall:
        return self._plan()

    def _plan(self) -> PlannedCall:
        request, body, (parameters, between, estimated) = self._passed.request, self._passed.body, self._kept
        model = PassedOn(
            self.spec,
            protocol=request.protocol,
            target=self._passed.target,
            body=body.encode(),
            exchange=self.exchange,
            prompt_tokens=estimated,
        )
        most = min(request.max_output_tokens or self.spec.max_output_tokens, 10_000_000)
        return PlannedCall(
            model=model,
            spec=self.spec,
            request=llm.Request(
                payload={}, max_output_tokens=most, max_characters=self.config.stream.max_answer_characters
            ),
            purpose=GATEWAY,
            prompt_tokens=estimated,
            estimated_tokens=estimated,
            parameters={
                "protocol": str(request.protocol),
                "body": parameters,
                **({"prices": asdict(self.spec.prices)} if self.spec.prices.input else {}),
            },
            manifest=[],
            digest=body_digest(body),
            texts={"body": between},
        )

    async def in_thread(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return await db(call, *args, **kwargs)  # without patience: the client is told at once

    def held(self) -> AbstractContextManager[Change]:
        return transactions.held(self.turn)

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        return self.spending.limits

    def write_start(self, record: Change, about: dict[str, Any]) -> tuple[str, str]:
        message_id = new_id("msg")
        call_id = turn_store.add_call(record, message_id=message_id, **about)
        message_store.append_message(
            record,
            turn_id=self.turn.id,
            message=Message(role="assistant", parts=()),
            model=about["model"],
            message_id=message_id,
            call_id=call_id,
        )
        return call_id, message_id

    def started(self, call: RunningCall) -> None:
        self.spending.start_timer(call.time_limit)
        message_id = call.message_id or ""
        provider, _, model = self.spec.litellm_model.partition("/")
        answer = Answer(
            session_id=self.session.id,
            message_id=message_id,
            config=self.config.stream,
            owner_id=self.session.owner_id,
            made_by=lambda: {"provider": provider, "model": model, "prompt": ""},
        )
        self.step = Step(message_id=message_id, call=call, answer=answer)
        bodies.keep(
            self.session.id,
            Body(call.id, self._passed.body, self._kept[0].get("depth", 0), call.planned.estimated_tokens),
        )

    def seconds(self, call: RunningCall) -> float:
        return self.spec.total_timeout_seconds

    async def receive(self, call: RunningCall, request: llm.Request) -> llm.Reply:
        assert self.step is not None  # noqa: S101 - the call has started
        reply = await self.step.answer.stream(call.planned.model, request)
        asyncio.get_running_loop().call_later(HOLD_SECONDS, self.exchange.close)
        return reply

    async def finish(self, call: RunningCall, reply: llm.Reply) -> tuple[llm.Reply, list[OpenCall]]:
        step = self.step
        assert step is not None  # noqa: S101 - the call has started
        step.is_counted = True
        used = usage_record(reply.usage, cost=llm.cost_micros(self.spec, reply.usage))
        self.progress.usage = add_usage(self.progress.usage, used)
        calls = await patiently(transactions.end_step, self.turn, step, reply)
        self.step = None
        hub.drop_text(self.session.id, step.message_id)
        return reply, calls

    async def use_next_model(self) -> bool:
        return False  # the client chose the model


# The bytes that were sent: each call keeps what differs from the call before it in the session.

MOST_DEPTH = 64  # calls that one's bytes may rest on; the next one is kept whole
MOST_BODIES = 64 * 1024 * 1024  # characters of bodies in memory


@dataclass(frozen=True, slots=True)
class Body:
    call_id: str
    text: str
    depth: int
    tokens: int  # as estimated


class _Bodies:
    """The newest bodies of sessions that this process has passed on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Body] = OrderedDict()
        self._size = 0

    def keep(self, session_id: str, body: Body) -> None:
        before = self._kept.pop(session_id, None)
        self._size += len(body.text) - (len(before.text) if before else 0)
        self._kept[session_id] = body
        while self._size > MOST_BODIES:
            self._size -= len(self._kept.popitem(last=False)[1].text)

    def find(self, session_id: str) -> Body | None:
        return self._kept.get(session_id)


bodies = _Bodies()


KeptBody = tuple[dict[str, Any], str, int]


def keep_body(session_id: str, text: str) -> KeptBody:
    """Return how the bytes of a call are kept: what its row says of them, the text that stands beside it, and its tokens.

    What it has in common with the call before is counted by its share of that, since counting all takes longest.
    """
    before = bodies.find(session_id)
    if before is None and (last := load_last_body(session_id)):
        before = Body(*last, estimate_text(last[1]))
    if before is None or before.depth >= MOST_DEPTH:
        return {"first": 0, "last": 0}, text, estimate_text(text)
    found = difference(text, before.text)
    if len(found.between) > len(text) // 2:
        return {"first": 0, "last": 0}, text, estimate_text(text)
    place = {"after": before.call_id, "first": found.first, "last": found.last, "depth": before.depth + 1}
    shared = (found.first + found.last) / max(1, len(before.text))
    return place, found.between, round(before.tokens * shared) + estimate_text(found.between)

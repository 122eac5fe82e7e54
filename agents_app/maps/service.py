"""What a person or a model does with map runs, the same at every endpoint, and the tools with which a model does it.

Each that is given the id of a run raises ``OperatorRunNotFoundError`` if it is not there, or belongs to another person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model
from django.utils.translation import gettext_noop

from agents_app import store
from agents_app.queries import find_run_by_key, load_run
from agents_app.schedule import wake_workers
from agents_app.tools.memory.reach import find, load_family, wanted_id
from agents_app.tools.memory.reading import describe_operator_run
from agents_app.tools.registry import ToolContext, check_tools, tool
from agents_app.turns.claim import check_length, stored_key
from agents_app.turns.lifecycle import LOOK_AGAIN_SECONDS, LOOK_PAUSE_SECONDS, create_session
from agents_app.turns.runner import runner
from files_app.contents import content_size, reading
from files_app.intake import keep_file, refer
from files_app.queries import load_file_reference
from mnesis_core import errors
from mnesis_core.maps import values as maps
from mnesis_core.maps.prompts import schema_of
from mnesis_core.maps.schema import compile_schema
from mnesis_core.maps.template import compile_template
from mnesis_core.providers.litellm_parameters import takes_format
from mnesis_core.records import FileReference, SessionRecord
from mnesis_core.spending import TurnLimits, tightest
from mnesis_core.text import nests_within, text_digest
from mnesis_core.turns.inbox import check_depth
from mnesis_core.turns.options import read_options
from sessions_app.conf import default_model, get_spec, session_config, site_config
from sessions_app.database.threads import db
from sessions_app.record.change import Change, change
from sessions_app.record.hub import hub
from sessions_app.record.session_queries import load_depth, load_session
from sessions_app.record.turn_queries import is_interrupted, load_turn

MOST_RETRIES, MOST_TURNS, HOTTEST = 10, 200, 2.0
LONGEST_TRY_SECONDS = 86_400.0
MOST_GIVEN_ITEMS = 100_000  # that come with the request; more of them are a file
LONGEST_WAIT = 3_600.0  # seconds
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRequest:
    """What to do with each line of a JSON Lines file, or with each of ``items``; ``None`` stands for the site's default.

    Without a ``session_id`` the run belongs to the file's session, or to a new one. ``native_schema`` says whether the
    provider is told the schema; by default it is if its model is known to take one. An empty ``model`` is the session's.
    """

    kind: maps.OperatorKind
    template: str
    session_id: str | None = None
    file_id: str | None = None
    items: Sequence[Any] | None = None
    schema: dict[str, Any] | None = None
    native_schema: bool | None = None
    model: str = ""
    system_prompt: str = ""
    concurrency: int | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    temperature: float | None = None
    read_only: bool = True
    tools: Sequence[str] | None = None
    max_turns: int | None = None
    limits: TurnLimits | None = None
    idempotency_key: str | None = None


def start(asked: MapRequest, *, owner_id: int, turn_id: str = "", part_id: str = "") -> maps.RunRecord:
    """Create a run, which workers execute; return the earlier run if the idempotency key has been used for it.

    A template, a schema or a first item that cannot be used is refused before anything is spent. ``turn_id`` and
    ``part_id`` name the tool call that asks for the run.

    :raises SessionNotFoundError: there is no such session, or it belongs to another person.
    :raises SessionArchived: the session takes nothing new.
    :raises FileReferenceNotFoundError: the person has no such file.
    :raises InvalidTemplate: the template cannot be used, or not with the first item.
    :raises InvalidSchema: the schema cannot be used.
    :raises InvalidInput: there is no input, or its first item cannot be read.
    :raises ModelNotFoundError: there is no such model.
    :raises DelegationRefused: its sub-agents would stand too deep.
    :raises IdempotencyMismatch: the key was used for another run.
    :raises InvalidRequest: a value is out of its bounds.
    """
    if asked.session_id is not None:
        load_session(asked.session_id, owner_id=owner_id)
    check_texts(asked)
    stored_key(asked.idempotency_key)
    file = _input_of(asked, owner_id)
    session = load_session(file.session_id, owner_id=owner_id)
    spec = _spec_of(asked, session, turn_id)
    with reading(file.content_id) as read:
        line_bytes = site_config().operators.line_bytes
        first = next(maps.input_lines(read, content_size(file.content_id), line_bytes=line_bytes), None)
        if first is None:
            raise errors.InvalidInput(gettext_noop("The input has no items."), field="file_id")
        # A template that fails with the first item would fail with every item.
        compile_template(spec.template).render(maps.read_item(read(first.offset, first.length)))
    with change(session.id) as record:
        if (known := find_run_by_key(session.id, key) if (key := asked.idempotency_key) else None) is not None:
            if (known.kind, known.spec, known.input_file_id) != (asked.kind, spec, file.id):
                raise errors.IdempotencyMismatch(run_id=known.id)
            return known
        _refuse_archived(record)
        run_id = store.start_run(
            record,
            kind=asked.kind,
            spec=spec,
            input_file_id=file.id,
            turn_id=turn_id,
            part_id=part_id,
            idempotency_key=asked.idempotency_key,
        )
        wake_workers()
    return load_run(run_id)


def set_state(run_id: str, state: maps.RunState, *, owner_id: int) -> maps.RunRecord:
    """Pause, resume or cancel a run.

    A paused run starts no more items, and those in flight come to their end. A cancelled run's items in flight are cut off
    within seconds, and what is done is kept.

    :param state: ``PAUSED``, ``RUNNING`` or ``CANCELLED``
    :raises OperatorRunNotInState: the run is over or in this state already; only a paused or cancelled one is resumed.
    :raises SessionArchived: the run is to be resumed, and its session takes nothing new.
    """
    run = load_run(run_id, owner_id=owner_id)
    with change(run.session_id) as record:
        if state is maps.RunState.RUNNING:
            _refuse_archived(record)
        reason = "" if state is maps.RunState.RUNNING else maps.StopReason.PERSON.value
        store.set_run_state(record, run.id, state, reason=reason)
        # Also to stop: a worker has to write what there is so far.
        wake_workers()
    return load_run(run.id)


def retry_failed(run_id: str, *, owner_id: int) -> maps.RunRecord:
    """Attempt the failed items again, as if for the first time.

    :raises OperatorRunNotInState: no item has failed, or the run was cancelled and must be resumed first.
    :raises SessionArchived: its session takes nothing new.
    """
    run = load_run(run_id, owner_id=owner_id)
    with change(run.session_id) as record:
        _refuse_archived(record)
        if not store.retry_failed(record, run.id):
            raise errors.OperatorRunNotInState(
                gettext_noop("No item of this run has failed."), run_id=run.id, state=run.state.value
            )
        wake_workers()
    return load_run(run.id)


async def wait(run_id: str, *, owner_id: int, seconds: float) -> maps.RunRecord:
    """Return the run when it is over or paused, or as it is after this number of seconds."""
    run = await db(load_run, run_id, owner_id=owner_id)
    with suppress(TimeoutError), hub.follow(run.session_id) as follower:
        async with asyncio.timeout(seconds):
            while (run := await db(load_run, run_id, owner_id=owner_id)).state.is_live:
                await asyncio.sleep(LOOK_PAUSE_SECONDS)
                await follower.news(seconds=LOOK_AGAIN_SECONDS)
    return run


def check_texts(asked: MapRequest) -> None:
    """:raises InvalidTemplate: the template cannot be used, or not with the first of the items
    :raises InvalidSchema: the schema cannot be used.
    """
    template = compile_template(asked.template)
    # Before a session is made for the items.
    if asked.items and nests_within(asked.items[0], maps.DEEPEST_ITEM):
        template.render(asked.items[0])
    if asked.schema is not None:
        compile_schema(asked.schema)


def new_session(asked: MapRequest, *, owner_id: int) -> str:
    """:raises ModelNotFoundError: there is no such model."""
    owner = get_user_model().objects.get(pk=owner_id)
    title = "LLM map" if asked.kind is maps.OperatorKind.LLM else "Agentic map"
    return create_session(owner=owner, model=asked.model or default_model(), title=title).id


def _refuse_archived(record: Change) -> None:
    if record.archived:
        raise errors.SessionArchived(session_id=record.session_id)


def _input_of(asked: MapRequest, owner_id: int) -> FileReference:
    if (asked.file_id is None) == (asked.items is None):
        raise errors.InvalidInput(gettext_noop("Give either a file (its id) or items."), field="file_id")
    if asked.items is None:
        file = load_file_reference(asked.file_id or "", owner_id=owner_id)
        if asked.session_id in (None, file.session_id):
            return file
        size = content_size(file.content_id)
        return refer(asked.session_id, owner_id=owner_id, path=file.path, content_id=file.content_id, size=size)
    session_id = asked.session_id or new_session(asked, owner_id=owner_id)
    if len(asked.items) > MOST_GIVEN_ITEMS:
        raise errors.InvalidInput(
            gettext_noop("More than %(most)s items come as a file."), {"most": MOST_GIVEN_ITEMS}, field="items"
        )
    if not all(nests_within(item, maps.DEEPEST_ITEM) for item in asked.items):
        raise errors.InvalidInput(
            gettext_noop("An item nests more than %(most)s objects and lists."),
            {"most": str(maps.DEEPEST_ITEM)},
            field="items",
        )
    lines = [f"{maps.one_line(item)}\n" for item in asked.items]
    name = f"maps/items-{text_digest(''.join(lines))[:12]}.jsonl"
    chunks = ("".join(lines[at : at + 1_000]).encode() for at in range(0, len(lines), 1_000))
    return keep_file(session_id, owner_id=owner_id, path=name, chunks=chunks)


def _spec_of(asked: MapRequest, session: SessionRecord, turn_id: str) -> maps.OperatorSpec:
    config, is_agentic = site_config().operators, asked.kind is maps.OperatorKind.AGENTIC
    most, seconds = config.per_run, config.timeout_seconds
    if is_agentic:
        check_depth(load_depth(session), session_config(session.config).delegation)
        most, seconds = config.per_run_agentic, config.timeout_agentic_seconds
    alias = asked.model or session.model
    model = get_spec(alias, user_id=session.owner_id)
    check_length("system_prompt", asked.system_prompt, site_config().limits.message_characters)
    check_tools(asked.tools or (), user_id=session.owner_id)
    if is_agentic and asked.native_schema:
        raise errors.InvalidRequest(
            gettext_noop("native_schema is for llm_map: a sub-agent answers beside its tools"), field="native_schema"
        )
    spec = maps.OperatorSpec(
        template=asked.template,
        schema=asked.schema,
        model=alias,
        system_prompt=asked.system_prompt,
        concurrency=int(_bounded("concurrency", asked.concurrency, most, 1, most)),
        max_retries=_bounded("max_retries", asked.max_retries, config.max_retries, 0, MOST_RETRIES),
        timeout_seconds=_bounded("timeout_seconds", asked.timeout_seconds, seconds, 0.1, LONGEST_TRY_SECONDS),
        temperature=_bounded("temperature", asked.temperature, None, 0, HOTTEST),
        read_only=asked.read_only,
        tools=None if asked.tools is None else tuple(asked.tools),
        max_turns=_bounded("max_turns", asked.max_turns, config.max_turns, 1, MOST_TURNS),
        limits=asked.limits or TurnLimits(),
    )
    if turn_id:
        # A run may spend no more tokens and money than the turn that asks for it, even after that has ended.
        limits = read_options(load_turn(turn_id, session_id=session.id).options).limits or TurnLimits()
        of_turn = TurnLimits(tokens=limits.tokens, cost_micros=limits.cost_micros)
        spec = replace(spec, limits=tightest(spec.limits, of_turn))
    schema = schema_of(spec)
    if schema is None or schema.response_format is None or is_agentic or asked.native_schema is False:
        return spec
    return replace(spec, native_schema=asked.native_schema or takes_format(model, schema.response_format))


def _bounded(name: str, value: Any, otherwise: Any, least: float, most: float) -> Any:
    if value is None:
        return otherwise
    if not least <= value <= most:
        raise errors.InvalidRequest(
            gettext_noop("%(name)s must lie between %(least)s and %(most)s"),
            {"name": name, "least": f"{least:g}", "most": f"{most:g}"},
            field=name,
        )
    return value


@tool(timeout_seconds=None)
async def llm_map(
    context: ToolContext,
    prompt_template: str,
    output_schema: dict[str, Any] | None = None,
    input_file: str = "",
    items: Sequence[Any] = (),
    concurrency: int = 0,
    model: str = "",
    wait_seconds: float = 600,
) -> str:
    """Ask a model the same about each of many items, in place of a loop, and get a file of checked results.

    input_file: id (file_…) of a JSON Lines file; or items: a few values. prompt_template: Jinja that uses item, such as
    Translate {{ item.text }}. Every answer must be JSON that fits output_schema. You get the run's id, counts, first failures
    and the id of the results, a line for each item. After wait_seconds it goes on; lcm_describe of its id says how far it is.
    """
    values = {"items": items or None, "schema": output_schema, "model": model, "concurrency": concurrency or None}
    return await _run(context, maps.OperatorKind.LLM, prompt_template, input_file, wait_seconds, **values)


@tool(timeout_seconds=None)
async def agentic_map(
    context: ToolContext,
    prompt_template: str,
    output_schema: dict[str, Any] | None = None,
    input_file: str = "",
    items: Sequence[Any] = (),
    concurrency: int = 0,
    model: str = "",
    read_only: bool = True,
    tools: Sequence[str] = (),
    max_turns: int = 0,
    wait_seconds: float = 1_800,
) -> str:
    """Like llm_map, but with a sub-agent for each item.

    It is meant for items that each need several steps, such as looking things up.

    read_only: only with tools that change nothing. tools: what it has, or else yours. max_turns: its model calls.
    """
    values = {"items": items or None, "schema": output_schema, "model": model, "concurrency": concurrency or None}
    values |= {"read_only": read_only, "tools": tools or None, "max_turns": max_turns or None}
    return await _run(context, maps.OperatorKind.AGENTIC, prompt_template, input_file, wait_seconds, **values)


async def _run(
    context: ToolContext, kind: maps.OperatorKind, template: str, input_file: str, wait_seconds: float, **values: Any
) -> str:
    def find_input() -> str:
        found = find(load_family(context), wanted_id(input_file))
        if found.kind != "file":
            raise errors.FileReferenceNotFoundError(gettext_noop("input_file must be the id of a file (file_…)."))
        return load_file_reference(found.id, session_id=found.session_id).id

    file_id = await db(find_input) if input_file.strip() else None
    asked = MapRequest(kind=kind, template=template, session_id=context.session_id, file_id=file_id, **values)
    if not 0 <= wait_seconds <= LONGEST_WAIT:
        raise errors.InvalidRequest(
            gettext_noop("wait_seconds must lie between 0 and %(most)s"),
            {"most": f"{LONGEST_WAIT:g}"},
            field="wait_seconds",
        )
    begun = asyncio.ensure_future(
        db(start, asked, owner_id=context.owner_id, turn_id=context.turn_id, part_id=context.part_id)
    )
    try:
        run = await asyncio.shield(begun)
        # Its permit is another turn's meanwhile, and what it asks of models the run's.
        with runner.release_slot(context.turn_id), runner.mark_waiting(context.turn_id):
            run = await wait(run.id, owner_id=context.owner_id, seconds=wait_seconds)
    except asyncio.CancelledError:
        # A run whose turn was interrupted while it waits is cancelled with it; a run whose server stops goes on.
        try:
            run = await begun
            if await db(is_interrupted, context.turn_id):
                await db(set_state, run.id, maps.RunState.CANCELLED, owner_id=context.owner_id)
        except Exception:
            # Not raised: an error in the place of a cancellation would let the interrupted turn go on.
            logger.info("a run was not cancelled with its turn", exc_info=True)
        raise
    return await db(describe_operator_run, run)

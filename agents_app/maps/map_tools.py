"""The tools ``llm_map`` and ``agentic_map``; what they return has one size for any number of items.

They stand apart from the other tools because runs use those; ``apps`` registers them when the site starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from agents_app.maps import service
from agents_app.tools import ToolContext, tool
from agents_app.tools.memory.describing import describe_operator_run
from agents_app.tools.memory.reach import find, load_family, wanted_id
from agents_app.turns.runner import runner
from files_app.queries import load_file_reference
from mnesis_core.errors import FileReferenceNotFoundError, InvalidRequest
from mnesis_core.maps.values import OperatorKind, RunRecord
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import is_interrupted

logger = logging.getLogger(__name__)
LONGEST_WAIT = 3_600.0  # seconds


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
    asked = service.MapRequest(
        kind=OperatorKind.LLM,
        template=prompt_template,
        session_id=context.session_id,
        file_id=await _file(context, input_file),
        items=items or None,
        schema=output_schema,
        model=model,
        concurrency=concurrency or None,
    )
    return await _run(context, asked, wait_seconds)


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
    """As llm_map, with a sub-agent for each item: for items that each need several steps, such as looking things up.

    read_only: only with tools that change nothing. tools: what it has, or else yours. max_turns: its model calls.
    """
    asked = service.MapRequest(
        kind=OperatorKind.AGENTIC,
        template=prompt_template,
        session_id=context.session_id,
        file_id=await _file(context, input_file),
        items=items or None,
        schema=output_schema,
        read_only=read_only,
        tools=tools or None,
        max_turns=max_turns or None,
        model=model,
        concurrency=concurrency or None,
    )
    return await _run(context, asked, wait_seconds)


async def _file(context: ToolContext, text: str) -> str | None:
    """Return the id of a file that this session may see, or ``None`` where none is named."""
    return await db(_visible_file, context, text) if text.strip() else None


def _visible_file(context: ToolContext, text: str) -> str:
    found = find(load_family(context), wanted_id(text))
    if found.kind != "file":
        raise FileReferenceNotFoundError("input_file must be the id of a file (file_…).")
    return load_file_reference(found.id, session_id=found.session_id).id


async def _run(context: ToolContext, asked: service.MapRequest, wait_seconds: float) -> str:
    if not 0 <= wait_seconds <= LONGEST_WAIT:
        raise InvalidRequest(f"wait_seconds must lie between 0 and {LONGEST_WAIT:g}", field="wait_seconds")
    begun = asyncio.ensure_future(
        db(service.start, asked, owner_id=context.owner_id, turn_id=context.turn_id, part_id=context.part_id)
    )
    try:
        run = await asyncio.shield(begun)
        # Its permit is another turn's meanwhile, and what it asks of models the run's.
        with runner.release_slot(context.turn_id), runner.mark_waiting(context.turn_id):
            run = await service.wait(run.id, owner_id=context.owner_id, seconds=wait_seconds)
    except asyncio.CancelledError:
        await _end_with_turn(context, begun)
        raise
    return await db(describe_operator_run, run)


async def _end_with_turn(context: ToolContext, begun: asyncio.Future[RunRecord]) -> None:
    """Cancel a run whose turn was interrupted while it waits; a run whose server stops goes on."""
    try:
        run = await begun
        if await db(is_interrupted, context.turn_id):
            await db(service.cancel, run.id, owner_id=context.owner_id)
    except Exception:
        # Not raised: an error in the place of a cancellation would let the interrupted turn go on.
        logger.info("a run was not cancelled with its turn", exc_info=True)

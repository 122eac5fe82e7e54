"""Calls, blocks and differences as the pages show them: numbers as words, texts that are safe to show, addresses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from compaction_app.inspector.calls import ComparedBlock, OpenedCall, compare, load_call_of, open_call, pretty
from compaction_app.inspector.occupancy import ScrubBar, call_at, draw, load_occupancy, place_of, size_of_call
from compaction_app.inspector.payload import may_see_payload, payload_file
from mnesis_core.context.blocks import Block, BlockKind
from mnesis_core.errors import CallNotFoundError
from mnesis_core.providers.rendering.accepted import outgoing
from mnesis_core.records import CallRecord
from mnesis_core.text import excerpt
from sessions_app.pages.markdown import (
    PIECE,
    format_characters,
    format_duration,
    format_money,
    format_number,
    show_invisible,
)
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record.call_queries import (
    CallFilter,
    CallHeading,
    calls_beside,
    list_headings,
    load_heading_of_call,
    models_of_calls,
    numbers_of_calls,
)

EXCERPT = 160
SOURCES = {
    "provider": "counted by the provider",
    "estimated": "our estimate",
    "imported": "as it was imported",
    "caller": "as the caller said",
}
"""Who says how many tokens a call took."""
KINDS: Mapping[BlockKind, str] = {
    BlockKind.SYSTEM: "System prompt",
    BlockKind.TOOL: "Tool",
    BlockKind.SUMMARY: "Summary",
    BlockKind.MESSAGE: "Message",
    BlockKind.TOOL_OUTPUT: "Tool call",
    BlockKind.TOMBSTONE: "Tombstone",
    BlockKind.FILE: "File",
    BlockKind.PATCH: "Change to files",
    BlockKind.GAP: "Left out",
}
COLOURS: Mapping[BlockKind, str] = {
    BlockKind.SYSTEM: "system",
    BlockKind.TOOL: "tools",
    BlockKind.SUMMARY: "summaries",
    BlockKind.MESSAGE: "messages",
    BlockKind.TOOL_OUTPUT: "tool_outputs",
    BlockKind.FILE: "files",
}
"""As in the meter of the context; what is not here has the one of anything else."""
CHANGES = {
    "entered": "entered",
    "left": "left",
    "summarised": "summarised",
    "tombstoned": "tombstoned",
    "shortened": "shortened",
    "unshortened": "whole again",
    "omitted": "left out",
    "unomitted": "back in",
    "answered": "answered",
    "grew": "grew",
}
REASONS = {
    "first_call": "The first call: everything is new.",
    "new": "It was said since then.",
    "stands_for_earlier": "It stands for what the earlier prompt showed.",
    "fits_again": "There is room for it again.",
    "summarised": "A summary stands for it now.",
    "revised": "A revision took its place.",
    "over_budget": "There was no room for it.",
    "pruned": "Its output was pruned; a short mark stands in its place.",
    "result_came": "Its result came.",
    "more_parts": "More of it was written.",
    "offered": "It may be called now.",
    "not_offered": "It may not be called any more.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """A call as a line."""

    id: str
    number: str
    purpose: str
    model: str
    state: str
    error: str
    created_at: Any
    estimated: str
    input: str
    output: str
    cache: str
    """Read from and written to the provider's cache."""
    source: str
    cost: str
    duration: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBlock:
    """A block as a line."""

    number: int
    """Its place in the prompt, from 1."""
    block: Block
    kind: str
    colour: str
    name: str
    tokens: str
    share: str
    begins: str
    span: str
    """The messages it is of or stands for."""
    origin: str
    """Where what it was made of is shown; empty: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """All blocks of one kind, and their stretch of a bar of 1,000."""

    kind: str
    colour: str
    count: int
    tokens: str
    share: str
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A difference as a line."""

    change: str
    tone: str
    """Of its chip."""
    title: str
    name: str
    begins: str
    span: str
    origin: str
    reason: str
    by: str
    """Where the summary is that took its place."""
    tokens: str


def shown_call(call: CallHeading, number: int) -> ShownCall:
    """A call with its numbers as words."""
    usage = call.usage
    cached = [(usage.tokens_cache_read, "read"), (usage.tokens_cache_write, "written")]
    return ShownCall(
        id=call.id,
        number=f"{number:,}",
        purpose=show_invisible(call.purpose),
        model=show_invisible(call.model),
        state=call.state,
        error=show_invisible(call.error_code or ""),
        created_at=call.created_at,
        estimated=f"{call.estimated_tokens:,}",
        input=format_number(usage.tokens_input),
        output=format_number(usage.tokens_output),
        cache=", ".join(f"{count:,} {what}" for count, what in cached if count),
        source=SOURCES.get(usage.usage_source or "", ""),
        cost=format_money(usage.cost_micros),
        duration=format_duration(call.seconds),
    )


def facts_of(call: CallRecord) -> list[tuple[str, str]]:
    """The rest of what is known of a call, as (name, value)."""
    facts = [
        ("Asked as", call.provider_model),
        ("Attempts", "" if call.attempts in (None, 1) else str(call.attempts)),
        ("Outcome", call.outcome or ""),
        ("Finish reason", call.finish_reason or ""),
        *_parameters(call.parameters),
    ]
    return [(name, show_invisible(value)) for name, value in facts if value]


def _parameters(parameters: Any) -> list[tuple[str, str]]:
    given = parameters if isinstance(parameters, dict) else {}
    hidden = ("texts", "calibration")
    calibration = given.get("calibration")
    ratio = calibration.get("ratio") if isinstance(calibration, dict) else None
    facts = [(_label(name), _value(value)) for name, value in given.items() if name not in hidden]
    return [*facts, ("Estimate corrected by", f"× {ratio:g}")] if isinstance(ratio, int | float) else facts


def _label(name: str) -> str:
    words = excerpt(str(name), 40).replace("_", " ")
    return words[:1].upper() + words[1:]


def _value(value: Any) -> str:
    return f"{value:,}" if type(value) is int else excerpt(str(value), 200)


def shown_blocks(blocks: Sequence[Block], session_id: str, *, first: int, count: int) -> list[ShownBlock]:
    """Some of the blocks of a prompt, from the place ``first`` on."""
    total = sum(block.tokens for block in blocks)
    chosen = enumerate(blocks[first : first + count], start=first + 1)
    return [_shown_block(block, number, total, session_id) for number, block in chosen]


def _shown_block(block: Block, number: int, total: int, session_id: str) -> ShownBlock:
    return ShownBlock(
        number=number,
        block=block,
        kind=KINDS[block.kind],
        colour=COLOURS.get(block.kind, "other"),
        name=excerpt(block.name, 80),
        tokens=f"{block.tokens:,}",
        share=share_of(block.tokens, total),
        begins=begins(block),
        span=span_of(block),
        origin=origin_of(block, session_id),
    )


def shares_of(blocks: Iterable[Block]) -> list[Share]:
    """How much of a prompt is of what kind, in the order of ``KINDS``."""
    counts, tokens = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for block in blocks:
        counts[block.kind] += 1
        tokens[block.kind] += block.tokens
    total, at, shares = sum(tokens.values()), 0, []
    for kind in [kind for kind in KINDS if counts[kind]]:
        x, end = 1_000 * at / max(total, 1), 1_000 * (at + tokens[kind]) / max(total, 1)
        at += tokens[kind]
        shares.append(
            Share(
                kind=KINDS[kind],
                colour=COLOURS.get(kind, "other"),
                count=counts[kind],
                tokens=f"{tokens[kind]:,}",
                share=share_of(tokens[kind], total),
                x=round(x, 2),
                width=round(end - x, 2),
            )
        )
    return shares


def share_of(tokens: int, total: int) -> str:
    """A share in words: ``12 %``, ``<1 %``."""
    share = 100 * tokens / max(total, 1)
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"


def begins(block: Block) -> str:
    """How what a block says begins, on one line; of a summary, without the frame it stands in."""
    text = block.texts[-1][1]
    if block.kind is BlockKind.TOOL:
        text = str(json.loads(text)["description"])
    if block.kind is BlockKind.SUMMARY:
        text = text.partition("\n---\n")[2] or text
    if block.kind is BlockKind.TOOL_OUTPUT and not text:
        text = block.texts[0][1]
    return excerpt(text, EXCERPT)


def span_of(block: Block) -> str:
    """``message 7``, ``messages 7–12``; empty where a block is of none."""
    if not block.first_seq:
        return ""
    if block.first_seq == block.last_seq:
        return f"message {block.first_seq:,}"
    return f"messages {block.first_seq:,}–{block.last_seq:,}"


def origin_of(block: Block, session_id: str) -> str:
    """Where what a block was made of is shown."""
    if not block.item_id:
        return ""
    if block.kind is BlockKind.SUMMARY:
        return address_of("inspect-summary", session_id, block.item_id)
    message = address_of("inspect-sightings", session_id, block.item_id)
    return f"{message}#{block.part_id}" if message and block.part_id else message


def shown_change(change: ComparedBlock, session_id: str) -> ShownChange:
    """A difference with its numbers and reasons as words."""
    difference, block = change.difference, change.block
    span = span_of(block) if block else ""
    is_plain = block is not None and block.kind is BlockKind.MESSAGE
    return ShownChange(
        change=CHANGES[difference.change],
        tone=_tone(difference.change),
        title=span.capitalize() if is_plain else KINDS[block.kind] if block else difference.kind.capitalize(),
        name=excerpt(block.name if block else difference.id, 80),
        begins=begins(block) if block else "",
        span="" if is_plain else span,
        origin=origin_of(block, session_id) if block else "",
        reason=REASONS.get(difference.reason, ""),
        by=address_of("inspect-summary", session_id, difference.by) if difference.by else "",
        tokens=signed(change.tokens),
    )


def _tone(change: str) -> str:
    if change in ("entered", "unomitted", "unshortened", "answered", "grew"):
        return "accent"
    return "warning" if change in ("shortened", "omitted", "tombstoned") else ""


def signed(tokens: int | None) -> str:
    """``+1,203``, ``±0``; empty where it is not known."""
    if tokens is None:
        return ""
    return f"{tokens:+,}".replace("-", "\N{MINUS SIGN}") if tokens else "±0"


# What the model saw: the calls of a session, one call in blocks and as its payload, and how it differs from another.

PAGE = 50
BLOCKS = 100
CHANGES_SHOWN = 100
NEAR = 25
"""Calls that the picker of a comparison offers."""
HEAD = 20_000
"""Characters of a block's text or a payload that are shown at first."""
PURPOSES = ("turn", "summary", "file", "map")
STATES = ("running", "completed", "failed")
SECTIONS = (("blocks", "Blocks"), ("payload", "Payload"), ("difference", "Difference"))


@signed_in
def call_list(request: HttpRequest, session_id: str) -> HttpResponse:
    """The model calls of a session, newest first."""
    about = inspected(request, session_id)
    context = {"about": about, "tab": "inspect-calls", **_listed(request, about)}
    if request.headers.get("HX-Target") == "calls":
        return render(request, "compaction_app/_inspect_calls.html", context)
    return render(request, "compaction_app/inspect_calls.html", context | {"scrub": _scrub(about, None)})


@signed_in
def call_at_place(request: HttpRequest, session_id: str) -> HttpResponse:
    """The call that one column of the scrub bar shows.

    :raises Http404: no model was asked in this session.
    """
    about = inspected(request, session_id)
    call_id = call_at(about.id, number_in(request, "place") or 1)
    if call_id is None:
        raise Http404("no model was asked")
    section = request.GET.get("section", "")
    known = section if section in dict(SECTIONS) else ""
    return redirect(address_of("inspect-call", about.id, call_id, section=known))


@signed_in
def call_page(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """One call: facts, and the section that is asked for."""
    about = inspected(request, session_id)
    call = _call(request, about, call_id)
    opened = open_call(call)
    section = _section(request)
    context = {
        "about": about,
        "tab": "inspect-calls",
        **_facts(about, opened),
        "section": section,
        "sections": _sections(about, opened, section),
        **_BODIES[section](request, about, opened),
    }
    if request.headers.get("HX-Target") == "call":
        return render(request, "compaction_app/_inspect_call_swap.html", context)
    return render(request, "compaction_app/inspect_call.html", context | {"scrub": _scrub(about, call)})


@signed_in
def call_block(request: HttpRequest, session_id: str, call_id: str, number: int) -> HttpResponse:
    """The text of one block as the model read it; a page of its own, or the part of one that htmx asks for.

    :raises Http404: the call has no such block.
    """
    about = inspected(request, session_id)
    opened = open_call(_call(request, about, call_id))
    shown = shown_blocks(opened.blocks, about.id, first=number - 1, count=1) if number > 0 else []
    if not shown:
        raise Http404("there is no such block")
    here = address_of("inspect-block", about.id, opened.record.id, str(number))
    offset, only = number_in(request, "offset") or 0, request.GET.get("text", "")
    texts = [
        (name, _stretch(outgoing(text), f"{here}?text={name}&", offset=offset))
        for name, text in opened.blocks[number - 1].texts
        if only in ("", name)
    ]
    context = {
        "about": about,
        "tab": "inspect-calls",
        "call_url": address_of("inspect-call", about.id, opened.record.id),
        # Not "block": inside {% block %} that name is the template's own.
        "shown": shown[0],
        "texts": texts,
    }
    is_part = "HX-Request" in request.headers
    return render(request, f"compaction_app/{'_inspect_block' if is_part else 'inspect_block'}.html", context)


@signed_in
def call_payload(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """The next stretch of a payload.

    :raises Http404: it cannot be rebuilt.
    """
    about = inspected(request, session_id)
    opened = open_call(_call(request, about, call_id))
    if opened.rebuilt.payload is None:
        raise Http404("this payload cannot be rebuilt")
    stretch = _payload(about, opened, offset=number_in(request, "offset") or 0)["payload"]
    return render(request, "compaction_app/_inspect_text.html", {"stretch": stretch, "label": "Payload"})


@signed_in
def call_payload_file(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """The whole payload as a file of JSON.

    :raises Http404: it cannot be rebuilt.
    """
    about = inspected(request, session_id)
    opened = open_call(_call(request, about, call_id))
    return payload_file(opened.record, opened.rebuilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of a long text."""

    text: str
    """Ready to be shown."""
    next_url: str
    """Where the next one is; empty at the end."""
    next_size: str
    size: str
    """Of the whole text."""


def _stretch(text: str, here: str, *, offset: int) -> Stretch:
    """``here`` is an address that waits for ``offset=``."""
    end = min(len(text), offset + (PIECE if offset else HEAD))
    return Stretch(
        text=show_invisible(text[offset:end]),
        next_url=f"{here}offset={end}" if end < len(text) else "",
        next_size=format_characters(min(len(text) - end, PIECE)),
        size=format_characters(len(text)),
    )


def _call(request: HttpRequest, about: Inspected, call_id: str) -> CallRecord:
    """:raises CallNotFoundError: the session has no such call, or this reader may not see all that it was sent."""
    call = load_call_of(about, call_id)
    if not about.is_own and not may_see_payload(request.user, call.purpose):
        raise CallNotFoundError(call_id=call_id)
    return call


def _listed(request: HttpRequest, about: Inspected) -> dict[str, Any]:
    chosen = CallFilter(**{name: request.GET.get(name, "") for name in ("purpose", "state", "model")})
    before = request.GET.get("before", "")
    found = list_headings(about.id, chosen=chosen, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    kept = {"purpose": chosen.purpose, "state": chosen.state, "model": chosen.model}
    older = page[-1].id if len(found) > PAGE else ""
    return {
        "calls": _shown(about, page),
        "purposes": PURPOSES,
        "states": STATES,
        "models": [(name, show_invisible(name)) for name in models_of_calls(about.id)],
        "chosen": chosen,
        "is_filtered": chosen != CallFilter(),
        "is_newest": not before,
        "newest_url": address_of("inspect-calls", about.id, **kept),
        "older_url": address_of("inspect-calls", about.id, before=older, **kept) if older else "",
    }


def _shown(about: Inspected, calls: list[CallHeading]) -> list[tuple[ShownCall, str]]:
    numbers = numbers_of_calls(about.id, [call.id for call in calls])
    return [(shown_call(call, numbers[call.id]), address_of("inspect-call", about.id, call.id)) for call in calls]


def _scrub(about: Inspected, call: CallRecord | None) -> ScrubBar | None:
    occupancy = load_occupancy(about.id)
    if occupancy is None:
        return None
    if call is None:
        return draw(occupancy)
    number = numbers_of_calls(about.id, [call.id])[call.id]
    shown = (number, size_of_call(call)) if call.purpose == "turn" else None
    return draw(occupancy, place=place_of(call, occupancy.calls), shown=shown)


def _section(request: HttpRequest) -> str:
    section = request.GET.get("section", "")
    if section in dict(SECTIONS):
        return section
    return "difference" if request.GET.get("compare") else "blocks"


def _facts(about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    call = opened.record
    heading = load_heading_of_call(about.id, call.id)
    if heading is None:
        raise CallNotFoundError(call_id=call.id)
    before, after = calls_beside(call)
    number = numbers_of_calls(about.id, [call.id])[call.id]
    return {
        "call": shown_call(heading, number),
        "record": call,
        "ended_at": call.ended_at,
        "facts": facts_of(call),
        "error_message": show_invisible(call.error_message or ""),
        "number": number,
        "rebuilt": opened.rebuilt,
        "problems": [show_invisible(problem) for problem in opened.rebuilt.problems],
        "message_url": address_of("inspect-sightings", about.id, call.message_id) if call.message_id else "",
        "before_url": address_of("inspect-call", about.id, before) if before else "",
        "after_url": address_of("inspect-call", about.id, after) if after else "",
        "file_url": address_of("inspect-payload-file", about.id, call.id),
    }


def _sections(about: Inspected, opened: OpenedCall, chosen: str) -> list[tuple[str, str, bool]]:
    """(address, name, whether it is shown) of each section that this call has."""
    return [
        (address_of("inspect-call", about.id, opened.record.id, section=name), label, name == chosen)
        for name, label in SECTIONS
        if name != "difference" or opened.is_of_turn
    ]


def _blocks_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    first = min(number_in(request, "from") or 0, max(len(opened.blocks) - 1, 0))
    end = min(first + BLOCKS, len(opened.blocks))
    here = opened.record.id
    return {
        "shares": shares_of(opened.blocks),
        "blocks": [
            (block, address_of("inspect-block", about.id, here, str(block.number)))
            for block in shown_blocks(opened.blocks, about.id, first=first, count=BLOCKS)
        ],
        "total": len(opened.blocks),
        "first": first + 1,
        "last": end,
        "earlier_url": _page_url(about, here, first - BLOCKS) if first else "",
        "later_url": _page_url(about, here, end) if end < len(opened.blocks) else "",
    }


def _page_url(about: Inspected, call_id: str, first: int) -> str:
    return address_of("inspect-call", about.id, call_id, section="blocks", **{"from": max(first, 0)})


def _payload_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    return _payload(about, opened, offset=0)


def _payload(about: Inspected, opened: OpenedCall, *, offset: int) -> dict[str, Any]:
    if opened.rebuilt.payload is None:
        return {"payload": None}
    here = address_of("inspect-payload", about.id, opened.record.id)
    return {"payload": _stretch(pretty(opened.rebuilt.payload), f"{here}?", offset=offset)}


def _difference_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    if not opened.is_of_turn:
        return {"comparison": None}
    wanted = request.GET.get("compare", "")
    comparison = compare(opened, owner_id=about.owner_id, earlier_id=wanted or None)
    compared, kind = comparison.compared, request.GET.get("change", "")
    chosen = [change for change in comparison.changes if kind in ("", change.difference.change)]
    first = number_in(request, "from") or 0
    end = first + CHANGES_SHOWN

    def here(**query: Any) -> str:
        return address_of("inspect-call", about.id, opened.record.id, section="difference", compare=wanted, **query)

    earlier = compared.earlier
    picked = [call for call, _ in _shown(about, _earlier_calls(about, opened.record))]
    return {
        "comparison": comparison,
        "earlier": earlier and _named(about, earlier),
        "earlier_id": earlier.id if earlier else "",
        "picked": picked,
        "is_far": earlier is not None and earlier.id not in {call.id for call in picked},
        "counts": [(CHANGES[name], count, here(change=name), name == kind) for name, count in compared.counts.items()],
        "all_url": here() if kind else "",
        "total": compared.total,
        "untold": compared.total - len(compared.changes),
        "changes": [shown_change(change, about.id) for change in chosen[first:end]],
        "earlier_url": here(change=kind, **{"from": max(first - CHANGES_SHOWN, 0) or None}) if first else "",
        "later_url": here(change=kind, **{"from": end}) if end < len(chosen) else "",
        "growth": signed(opened.record.estimated_tokens - (earlier.estimated_tokens if earlier else 0)),
    }


def _earlier_calls(about: Inspected, call: CallRecord) -> list[CallHeading]:
    return list_headings(about.id, chosen=CallFilter(purpose="turn"), before=call.id, limit=NEAR)


def _named(about: Inspected, call: CallRecord) -> tuple[int, str]:
    """The number and the address of a call."""
    return numbers_of_calls(about.id, [call.id])[call.id], address_of("inspect-call", about.id, call.id)


_BODIES = {"blocks": _blocks_body, "payload": _payload_body, "difference": _difference_body}

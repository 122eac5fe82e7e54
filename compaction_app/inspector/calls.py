"""What the model saw: the calls of a session, one call in blocks and as its payload, and how it differs from another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.gzip import gzip_page

from compaction_app.context.manifests import (
    MOST_CHANGES,
    ComparedCalls,
    calls_to_compare,
    compare_calls,
    compared,
    load_manifest,
    request_changes,
)
from compaction_app.context.state import PromptSources, RebuiltPayload, load_sources, rebuild_payload
from compaction_app.inspector.occupancy import call_at, draw, load_occupancy, place_of, size_of_call
from compaction_app.templatetags.compaction import KINDS
from mnesis_core.compaction.dag import runs_of
from mnesis_core.context.entries import Row
from mnesis_core.context.prompt_diff import MOST_PICTURES, pictures_in, pieces_of
from mnesis_core.context.replay import Block, BlockKind, blocks_beside, blocks_of
from mnesis_core.errors import CallNotFoundError, NotFound
from mnesis_core.files.pictures import SentPicture
from mnesis_core.providers.rendering import outgoing
from mnesis_core.records import GATEWAY, CallRecord
from sessions_app.pages.formats import format_characters
from sessions_app.pages.frames import shown_alone
from sessions_app.pages.markdown import PIECE, show_invisible
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record import turn_queries
from sessions_app.record.branch_queries import path_in

MAX_INDENTED_DEPTH = 100  # The indents of deeper JSON would be longer than what it says.
SEES_PAYLOADS = (
    "sessions_app.view_modelcall", "sessions_app.view_message", "sessions_app.view_messagepart",
    "sessions_app.view_prompttext", "compaction_app.view_summarynode",
)  # fmt: skip
# Permissions for what else a payload holds, by the purpose of its call.
_ALSO = {
    "file": ["files_app.view_filereference"],
    "map": ["files_app.view_filereference", "agents_app.view_operatorrun", "agents_app.view_operatortry"],
}
PAGE = 50
BLOCKS = 100
CHANGES_SHOWN = 100
COMPARABLE_CALLS = 25
HEAD = 20_000  # characters of a block's text or a payload that are shown at first
PURPOSES = ("turn", GATEWAY, "summary", "file", "map")
COMPARABLE = ("turn", GATEWAY)
STATES = ("running", "completed", "failed")
SECTIONS = {
    "blocks": gettext_lazy("Blocks"),
    "payload": gettext_lazy("Payload"),
    "difference": gettext_lazy("Difference"),
}

Key = tuple[str, str]
NOT_KNOWN = {
    "turn": _("The record does not show what this call saw."),
    GATEWAY: _("A program wrote this prompt, so it is unknown which of these messages it had."),
}
ELSEWHERE = _("This call was made outside a turn, with its own prompt.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCall:
    record: CallRecord
    rebuilt: RebuiltPayload
    blocks: list[Block]  # in order; empty where the record does not give them


def open_call(call: CallRecord) -> OpenedCall:
    """Return a call with its payload and its blocks, from one read of the record. Never fails."""
    sources = _sources(call) if call.purpose == "turn" else None
    rebuilt = rebuild_payload(call, sources=sources)
    if sources:
        return OpenedCall(record=call, rebuilt=rebuilt, blocks=_blocks(sources))
    # The prompt of any other purpose has no manifest of the context: its messages are its blocks.
    payload = rebuilt.payload or {}
    pieces = pieces_of(payload if call.purpose == GATEWAY else {**payload, "tools": None})
    return OpenedCall(record=call, rebuilt=rebuilt, blocks=[piece.block for piece in pieces])


def compare(
    opened: OpenedCall, *, owner_id: int | None, earlier_id: str | None
) -> tuple[ComparedCalls, list[dict[str, Any]]]:
    """Return the difference of a call from an earlier one, by default the one before it, and each change for the page.

    ``block`` is one of the later prompt, else of the earlier one; ``tokens``, by how much the prompt grew for it. Either
    is ``None`` where it is not known.

    :raises CallNotFoundError: there is no such earlier call.
    :raises InvalidRequest: they cannot be compared.
    """
    if opened.record.purpose == GATEWAY:
        earlier, later = calls_to_compare(opened.record.id, owner_id=owner_id, earlier_id=earlier_id)
        found = request_changes(earlier, later)
        shown = compared(earlier, later, [change.difference for change in found])
        return shown, [change._asdict() for change in found[:MOST_CHANGES]]
    shown = compare_calls(opened.record.id, owner_id=owner_id, earlier_id=earlier_id)
    sources = _sources(shown.earlier) if shown.earlier else None
    before, after = _by_key(_blocks(sources) if sources else []), _by_key(opened.blocks)
    is_known = bool(opened.blocks) and (sources is not None or shown.earlier is None)
    changes = []
    for change in shown.changes:
        then, now = before.get((change.kind, change.id), []), after.get((change.kind, change.id), [])
        tokens = sum(block.tokens for block in now) - sum(block.tokens for block in then)
        block = next(iter([*now, *then]), None)
        changes.append({"difference": change, "block": block, "tokens": tokens if is_known else None})
    return shown, changes


def shares_of(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return all blocks of one kind and their stretch of a bar of 1,000, for each kind in the order of ``KINDS``."""
    found: dict[BlockKind, list[int]] = {kind: [] for kind in KINDS}
    for block in blocks:
        found[block.kind].append(block.tokens)
    total, at, shares = max(sum(map(sum, found.values())), 1), 0, []
    for kind, sizes in found.items():
        if sizes:
            x, end = 1_000 * at / total, 1_000 * (at + sum(sizes)) / total
            at += sum(sizes)
            shares.append({"kind": kind, "count": len(sizes), "tokens": sum(sizes), "x": x, "width": end - x})
    return shares


def pretty(payload: Mapping[str, Any]) -> str:
    # A stack instead of recursion: the description of a tool may be nested deeper than Python's stack allows.
    deepest = 0
    waiting: list[tuple[Any, int]] = [(payload, 1)]
    while waiting:
        here, depth = waiting.pop()
        inner = here.values() if isinstance(here, Mapping) else here
        waiting += [(item, depth + 1) for item in inner if isinstance(item, dict | list)]
        deepest = max(deepest, depth)
    return json.dumps(payload, ensure_ascii=False, indent=2 if deepest <= MAX_INDENTED_DEPTH else None)


def may_see_payload(user: Any, purpose: str) -> bool:
    """Return whether a person may look at everything that the payload of another person's call for this purpose holds."""
    return bool(user.has_perms((*SEES_PAYLOADS, *_ALSO.get(purpose, ()))))


def payload_file(call: CallRecord, rebuilt: RebuiltPayload) -> HttpResponse:
    """:raises Http404: it cannot be rebuilt."""
    if rebuilt.payload is None:
        raise Http404("this payload cannot be rebuilt")
    response = JsonResponse(rebuilt.payload)
    if rebuilt.body is not None:  # what was sent, byte for byte
        response.content = rebuilt.body.encode()
    response["Content-Disposition"] = f'attachment; filename="{call.id}.json"'
    return response


def _sources(call: CallRecord) -> PromptSources | None:
    try:
        return load_sources(call)
    except (ValueError, NotFound):  # rebuild_payload says why
        return None


def _blocks(sources: PromptSources) -> list[Block]:
    try:
        blocks = blocks_of(
            sources.manifest,
            sources.entries,
            system_prompt=sources.system_prompt,
            tools=sources.tools,
            facts=sources.facts,
        )
    except NotFound:
        return []
    return blocks + blocks_beside(sources.beside)


def _by_key(blocks: Iterable[Block]) -> dict[Key, list[Block]]:
    """Group blocks by what a difference may name: the system prompt, tools, messages, summaries and parts."""
    found: dict[Key, list[Block]] = {}
    for block in blocks:
        if block.kind is BlockKind.SYSTEM:
            keys = [("system", "")]
        elif block.kind is BlockKind.TOOL:
            keys = [("tool", block.name)]
        else:
            keys = [("summary" if block.kind is BlockKind.SUMMARY else "message", block.item_id)]
            keys += [("part", block.part_id)] if block.part_id else []
        for key in keys:
            found.setdefault(key, []).append(block)
    return found


@signed_in
def call_list(request: HttpRequest, session_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    kept = {name: request.GET.get(name, "") for name in ("purpose", "state", "model")}
    chosen = turn_queries.CallFilter(**kept)
    before = request.GET.get("before", "")
    found = turn_queries.list_headings(about.id, chosen=chosen, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    context = {
        "about": about,
        "tab": "inspect-calls",
        "calls": _with_numbers(about, page),
        "purposes": PURPOSES,
        "states": STATES,
        "models": turn_queries.models_of_calls(about.id),
        "chosen": chosen,
        "is_filtered": chosen != turn_queries.CallFilter(),
        "is_newest": not before,
        "newest_url": address_of("inspect-calls", about.id, **kept),
        "older_url": address_of("inspect-calls", about.id, before=page[-1].id, **kept) if len(found) > PAGE else "",
    }
    if request.headers.get("HX-Target") == "calls":
        return render(request, "compaction_app/calls/_calls.html", context)
    return render(request, "compaction_app/calls/calls.html", context | {"scrub": _scrub(about, None)})


@signed_in
def call_at_place(request: HttpRequest, session_id: str) -> HttpResponse:
    """Redirect to the call that one column of the scrub bar shows."""
    about = inspected(request, session_id)
    call_id = call_at(about.id, number_in(request, "place") or 1)
    if call_id is None:
        raise Http404("no model was asked")
    section = request.GET.get("section", "")
    return redirect(address_of("inspect-call", about.id, call_id, section=section if section in SECTIONS else ""))


@signed_in
def call_page(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    about, opened = _open(request, session_id, call_id)
    call = opened.record
    section = request.GET.get("section", "")
    if section not in SECTIONS:
        section = "difference" if request.GET.get("compare") else "blocks"
    [heading] = turn_queries.load_headings(about.id, [call.id])
    before, after = turn_queries.calls_beside(call)
    if section == "blocks":
        body = _blocks_body(request, about, opened)
    elif section == "payload":
        body = {"payload": _payload(about, opened, offset=0)}
    else:
        body = _difference_body(request, about, opened)
    sections = [
        (address_of("inspect-call", about.id, call.id, section=name), label, name == section)
        for name, label in SECTIONS.items()
        if name != "difference" or call.purpose in COMPARABLE
    ]
    context = {
        "about": about,
        "tab": "inspect-calls",
        "call": heading,
        "record": call,
        "number": turn_queries.numbers_of_calls(about.id, [call.id])[call.id],
        "rebuilt": opened.rebuilt,
        "branch": turn_queries.branches_of_calls(about.id, [call.id]).get(call.id, 0) if about.branch_seq else 0,
        "before": before,
        "after": after,
        "section": section,
        "sections": sections,
        **body,
    }
    if request.headers.get("HX-Target") == "call":
        return render(request, "compaction_app/calls/_call_swap.html", context)
    return render(request, "compaction_app/calls/call.html", context | {"scrub": _scrub(about, call)})


@signed_in
def call_block(request: HttpRequest, session_id: str, call_id: str, number: int) -> HttpResponse:
    """Render the text of one block as the model read it: a page of its own, or the part of one that htmx asks for."""
    about, opened = _open(request, session_id, call_id)
    if not 0 < number <= len(opened.blocks):
        raise Http404("there is no such block")
    here = address_of("inspect-block", about.id, opened.record.id, str(number))
    offset, only = number_in(request, "offset") or 0, request.GET.get("text", "")
    texts = [
        (name, _stretch(outgoing(text), f"{here}?text={quote(name)}&", offset=offset))
        for name, text in opened.blocks[number - 1].texts
        if only in ("", name)
    ]
    context = {
        "pictures": [
            address_of("inspect-picture", about.id, opened.record.id, str(number), str(place))
            for place, _ in enumerate(_pictures(opened, number), start=1)
        ],
        "about": about,
        "tab": "inspect-calls",
        "call_id": opened.record.id,
        # Not "block": inside {% block %} that name is the template's own.
        "shown": opened.blocks[number - 1],
        "number": number,
        "texts": texts,
    }
    is_part = "HX-Request" in request.headers
    return render(request, f"compaction_app/calls/{'_block' if is_part else 'block'}.html", context)


@signed_in
def call_picture(request: HttpRequest, session_id: str, call_id: str, number: int, place: int) -> HttpResponse:
    """Return a picture of a request through the gateway by itself."""
    _, opened = _open(request, session_id, call_id)
    found = _pictures(opened, number)[place - 1 : place] if place else []
    if not found:
        raise Http404("there is no such picture")
    return shown_alone(found[0].data, found[0].media_type, name=found[0].name)


def _pictures(opened: OpenedCall, number: int) -> list[SentPicture]:
    if opened.record.purpose != GATEWAY or not 0 < number <= len(opened.blocks):
        return []
    piece = pieces_of(opened.rebuilt.payload or {})[number - 1]
    return list(islice(pictures_in(piece.source), MOST_PICTURES))


@signed_in
def call_payload(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    about, opened = _open(request, session_id, call_id)
    stretch = _payload(about, opened, offset=number_in(request, "offset") or 0)
    if stretch is None:
        raise Http404("this payload cannot be rebuilt")
    return render(request, "compaction_app/calls/_text.html", {"stretch": stretch, "label": gettext("Payload")})


@signed_in
def call_payload_file(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    _, opened = _open(request, session_id, call_id)
    return payload_file(opened.record, opened.rebuilt)


def find_call(request: HttpRequest, session_id: str, call_id: str) -> tuple[Inspected, CallRecord]:
    """:raises CallNotFoundError: the session has no such call, or this reader may not see all that it was sent."""
    about = inspected(request, session_id)
    call = turn_queries.load_call(call_id)
    is_hidden = not about.is_own and not may_see_payload(request.user, call.purpose)
    if call.session_id != about.id or is_hidden:
        raise CallNotFoundError(call_id=call_id)
    return about, call


def _open(request: HttpRequest, session_id: str, call_id: str) -> tuple[Inspected, OpenedCall]:
    about, call = find_call(request, session_id, call_id)
    return about, open_call(call)


def _stretch(text: str, here: str, *, offset: int) -> dict[str, str]:
    """Return a stretch of a long text, every invisible character marked, with the address of the next one.

    :param here: an address that ends where ``offset=`` can follow
    """
    end = min(len(text), offset + (PIECE if offset else HEAD))
    return {
        "text": show_invisible(text[offset:end]),
        "next_url": f"{here}offset={end}" if end < len(text) else "",
        "next_size": format_characters(min(len(text) - end, PIECE)),
        "size": format_characters(len(text)),
    }


def _with_numbers(
    about: Inspected, calls: list[turn_queries.CallHeading]
) -> list[tuple[turn_queries.CallHeading, int]]:
    numbers = turn_queries.numbers_of_calls(about.id, [call.id for call in calls])
    return [(call, numbers[call.id]) for call in calls]


def _scrub(about: Inspected, call: CallRecord | None) -> dict[str, Any] | None:
    occupancy = load_occupancy(about.id)
    if occupancy is None:
        return None
    if call is None:
        return draw(occupancy)
    number = turn_queries.numbers_of_calls(about.id, [call.id])[call.id]
    shown = (number, size_of_call(call)) if call.purpose == "turn" else None
    return draw(occupancy, place=place_of(call, occupancy.calls), shown=shown)


def _blocks_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    total = len(opened.blocks)
    first = min(number_in(request, "from") or 0, max(total - 1, 0))
    end = min(first + BLOCKS, total)

    def page_url(start: int) -> str:
        return address_of("inspect-call", about.id, opened.record.id, section="blocks", **{"from": max(start, 0)})

    return {
        "shares": shares_of(opened.blocks),
        "blocks": list(enumerate(opened.blocks[first:end], start=first + 1)),
        "prompt_tokens": sum(block.tokens for block in opened.blocks),
        "total": total,
        "first": first + 1,
        "last": end,
        "earlier_url": page_url(first - BLOCKS) if first else "",
        "later_url": page_url(end) if end < total else "",
    }


def _payload(about: Inspected, opened: OpenedCall, *, offset: int) -> dict[str, str] | None:
    if opened.rebuilt.payload is None:
        return None
    here = address_of("inspect-payload", about.id, opened.record.id)
    return _stretch(pretty(opened.rebuilt.payload), f"{here}?", offset=offset)


def _difference_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    call = opened.record
    if call.purpose not in COMPARABLE:
        return {"compared": None}
    wanted, kind = request.GET.get("compare", ""), request.GET.get("change", "")
    reader = about.owner_id if about.is_at_home else None  # administrators see what its owner does not
    compared, changes = compare(opened, owner_id=reader, earlier_id=wanted or None)
    chosen = [change for change in changes if kind in ("", change["difference"].change)]
    first = number_in(request, "from") or 0
    end = first + CHANGES_SHOWN

    def here(**query: Any) -> str:
        return address_of("inspect-call", about.id, call.id, section="difference", compare=wanted, **query)

    earlier = compared.earlier
    nearby = turn_queries.list_headings(
        about.id, chosen=turn_queries.CallFilter(purpose=call.purpose), before=call.id, limit=COMPARABLE_CALLS
    )
    return {
        "compared": compared,
        "earlier": earlier,
        "earlier_number": turn_queries.numbers_of_calls(about.id, [earlier.id])[earlier.id] if earlier else None,
        "nearby": _with_numbers(about, nearby),
        "is_far": earlier is not None and earlier.id not in {one.id for one in nearby},
        "counts": [(name, count, here(change=name), name == kind) for name, count in compared.counts.items()],
        "all_url": here() if kind else "",
        "uncompared": compared.total - len(compared.changes),
        "changes": chosen[first:end],
        "earlier_url": here(change=kind, **{"from": max(first - CHANGES_SHOWN, 0) or None}) if first else "",
        "later_url": here(change=kind, **{"from": end}) if end < len(chosen) else "",
        "growth": call.estimated_tokens - (earlier.estimated_tokens if earlier else 0),
    }


# What the lens beside a conversation asks for: the calls that its bar moves over, and what each of them saw of the
# messages.


@signed_in
@gzip_page
def call_places(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return the calls on a ``branch``, by default the chosen one, oldest first: id, number, time and answer of each.

    The number is that among all calls of the session, the time in seconds, the answer the number of its message or 0.
    """
    about = inspected(request, session_id)
    path = path_in(about, number_in(request, "branch"))
    places = [
        (place.id, place.number, int(place.created_at.timestamp()), place.seq)
        for place in turn_queries.list_call_places(about.id)
        if place.purpose in COMPARABLE and (path is None or path.has(place.branch, place.seq))
    ]
    return JsonResponse({"calls": places})


@signed_in
def call_messages(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """Return how a call was shown the messages of the conversation, or in ``words`` why that is not known."""
    _, call = find_call(request, session_id, call_id)
    try:
        return JsonResponse(shown_by(load_manifest(call)) if call.purpose == "turn" else _words(call.purpose))
    except ValueError:
        return JsonResponse(_words("turn"))


def _words(purpose: str) -> dict[str, str]:
    return {"words": str(NOT_KNOWN.get(purpose, ELSEWHERE))}


def shown_by(manifest: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of messages as runs, by how a prompt shows them; those quoted in passages by their ids.

    ``shown`` has all of which more than a quotation is there, also the ``shortened`` ones and those of which an output is
    a tombstone (``tombstoned``). In place of ``summarised`` ones a summary is shown; ``left_out`` ones found no room.
    """
    messages = [row for row in manifest if row["kind"] in ("message", "pinned")]
    return {
        "shown": runs_of({row["seq"] for row in messages}),
        "shortened": runs_of({row["seq"] for row in messages if row["shortened"] or row["omitted"]}),
        "tombstoned": runs_of({row["seq"] for row in messages if row["tombstoned"]}),
        "summarised": _spans(manifest, "summary"),
        "left_out": _spans(manifest, "gap"),
        "quoted": sorted({line["id"] for row in manifest if row["kind"] == "retrieved" for line in row["lines"]}),
    }


def _spans(manifest: Sequence[Row], kind: str) -> list[tuple[int, int]]:
    return [(row["first_seq"], row["last_seq"]) for row in manifest if row["kind"] == kind]

"""The summaries of a session: the drawing of the DAG, its rows as a tree, and each summary beside its sources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.cache import get_conditional_response
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.gzip import gzip_page

from compaction_app import queries
from compaction_app.context.fidelity import Measured, bound_of, load_fidelity, load_measured
from compaction_app.inspector.timeline import ROLES
from compaction_app.lineage.claims import ClaimRecord, load_claims, tally
from compaction_app.templatetags.compaction import summary_html, summary_name
from mnesis_core.compaction.dag import Graph, Node, Span
from mnesis_core.compaction.fidelity import ItemKind
from mnesis_core.compaction.lineage import Support
from mnesis_core.context.branches import Path, branches_through
from mnesis_core.errors import CompactionNotFoundError, MessageNotFoundError, SessionNotFoundError, SummaryNotFoundError
from mnesis_core.records import AttemptRecord, ContextItemRecord, RunRecord, SummaryRecord, record_of
from mnesis_core.text import decode_text, encode_text, excerpt, printable
from sessions_app.conf import list_models
from sessions_app.pages import transcript
from sessions_app.pages.formats import format_number
from sessions_app.pages.markdown import render_markdown, show_invisible
from sessions_app.pages.permissions import Inspected, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record import timeline_queries
from sessions_app.record.branch_queries import load_branches, path_in
from sessions_app.record.context_queries import load_spans, standing_items

# The flags that ``marks`` in the drawing adds up: in the context now, made from what was revised since, replaced by a
# revision, made of summaries. static/js/summaries/drawing.js reads them.
ACTIVE, STALE, SUPERSEDED, CONDENSED = 1, 2, 4, 8
PAGE = 100
SOURCES = 50
TRIES = 100
PREVIEW = 160
MISSING = 300
MISSING_KINDS = {
    ItemKind.INSTRUCTION: gettext_lazy("Instructions"),
    ItemKind.DECISION: gettext_lazy("Decisions"),
    ItemKind.DATE: gettext_lazy("Dates"),
    ItemKind.NUMBER: gettext_lazy("Numbers"),
    ItemKind.NAME: gettext_lazy("Names"),
    ItemKind.IDENTIFIER: gettext_lazy("Identifiers"),
}
TAB = "inspect-summaries"
VIEWS = ("drawing", "table")
DEEPEST = 10_000
MOST_BRANCHES = 20  # that a summary is said to serve, by their numbers
T = TypeVar("T")


def load_drawing(session_id: str, *, at: int, last_seq: int, path: Path | None) -> dict[str, Any]:
    """Return the summaries that serve a path, with its context as of event ``at``, as columns for the browser's drawing.

    Each column has one value for each summary, by depth and then by first message. ``depth`` and ``first`` hold the
    difference to the value before, ``span`` how many more messages the last one is away. ``edges`` has for each summary
    over others its place, the number of its sources and their places; ``newest`` pairs of a superseded summary and its
    newest revision. ``verbatim``: messages that stand in the context themselves. Four queries, whatever the history.
    """
    active = set(timeline_queries.load_context_summaries(session_id, at=at, path=path))
    graph = queries.load_graph(session_id)
    nodes = sorted(serving(session_id, graph, path), key=lambda node: (node.depth, node.first_seq, node.id))
    places = {node.id: place for place, node in enumerate(nodes)}
    replaced = [node for node in nodes if node.superseded_seq is not None]
    marks, edges = [], []
    for node in nodes:
        is_superseded = node.superseded_seq is not None
        mark = ACTIVE * (node.id in active) + SUPERSEDED * is_superseded + CONDENSED * (node.kind == "condensed")
        marks.append(mark + STALE * (node.freshness == "stale" and not is_superseded))
        # Only the newest revisions: what was replaced stood for the same, and drawn twice it would hide the rest.
        if node.sources and not is_superseded:
            # A graph that was tampered with is drawn as far as it goes.
            sources = [
                places[graph.newest(id).id] for id in node.sources if id in places and graph.newest(id).id in places
            ]
            edges += [places[node.id], len(sources), *sources]
    return {
        "messages": last_seq,
        "verbatim": list(timeline_queries.load_context_spans(session_id, at=at, path=path)),
        "id": [node.id for node in nodes],
        "depth": _differences([node.depth for node in nodes]),
        "first": _differences([node.first_seq for node in nodes]),
        "span": [node.last_seq - node.first_seq for node in nodes],
        "count": [node.message_count for node in nodes],
        "level": [node.level for node in nodes],
        "tokens": [node.token_count for node in nodes],
        "source": [node.source_tokens for node in nodes],
        "marks": marks,
        "edges": edges,
        "newest": [place for node in replaced for place in (places[node.id], places[graph.newest(node.id).id])],
    }


def serving(session_id: str, graph: Graph, path: Path | None) -> list[Node]:
    """Return the summaries all of whose messages are on a path; without one, of a session without branches, every one."""
    if path is None:
        return list(graph.nodes.values())
    spans = load_spans(session_id)
    return [graph.nodes[span.id] for span in spans if span.id in graph.nodes and path.has(span.branch, span.last_seq)]


def _differences(values: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise([0, *values])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    id: str
    type: str
    name: str
    text: str
    tokens: int
    seq: int | None = None
    newest_id: str = ""  # the revision that has taken the place of a summary since
    is_active: bool = False  # whether it stands in the context itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    items: list[T]
    offset: int
    total: int

    @property
    def next_offset(self) -> int | None:
        end = self.offset + len(self.items)
        return end if self.items and end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryView(queries.Description):
    sources: Listing[Source]
    stay: ContextItemRecord | None
    run: RunRecord | None
    tries: list[AttemptRecord]
    branches: list[int]  # those that it serves; empty in a session without branches
    measured: Measured | None
    is_alarm: bool

    @property
    def is_active(self) -> bool:
        return self.in_context == self.summary.id

    @property
    def some_branches(self) -> list[int]:
        return self.branches[:MOST_BRANCHES]

    @property
    def more_branches(self) -> int:
        return max(0, len(self.branches) - MOST_BRANCHES)

    @property
    def call_id(self) -> str | None:
        """The call whose answer it is, the last of them where it was written in pieces."""
        return next((attempt.call_id for attempt in reversed(self.tries) if attempt.accepted), None)


def load_view(summary: SummaryRecord) -> SummaryView:
    try:
        run = queries.load_run(summary.run_id, session_id=summary.session_id) if summary.run_id else None
    except CompactionNotFoundError:
        run = None
    measured = load_measured(summary.session_id).get(summary.id)
    return record_of(
        SummaryView,
        queries.describe_summary(summary),
        sources=open_sources(summary, offset=0),
        stay=timeline_queries.load_stay(summary.session_id, summary.id),
        run=run,
        branches=branches_served(summary),
        measured=measured,
        is_alarm=measured is not None and measured.is_alarm(bound=bound_of(summary.session_id)),
        # An undone revision has the text of an earlier one, and so its attempts.
        tries=queries.load_attempts(summary.restores or summary.id, session_id=summary.session_id, limit=TRIES),
    )


def branches_served(summary: SummaryRecord) -> list[int]:
    branches = load_branches(summary.session_id)
    span = next((span for span in load_spans(summary.session_id) if span.id == summary.id), None) if branches else None
    return [] if span is None else sorted(branches_through(branches, span.branch, span.last_seq - 1))


def open_sources(summary: SummaryRecord, *, offset: int) -> Listing[Source]:
    session_id, total = summary.session_id, len(summary.source_ids)
    ids = [id for _, id in summary.source_ids[offset : offset + SOURCES]]
    active = standing_items(session_id, ids)
    if summary.kind == "condensed":
        heads, later = queries.load_heads(ids, session_id=session_id), queries.later_revisions(ids)
        items = [
            Source(
                id=id,
                type="summary",
                name=summary_name(heads[id]),
                text=excerpt(heads[id].text, PREVIEW),
                tokens=heads[id].token_count,
                newest_id=later.get(id, ""),
                is_active=id in active,
            )
            for id in ids
            if id in heads
        ]
    else:
        found = timeline_queries.preview_messages(ids, at=timeline_queries.NOW)
        items = [
            Source(
                id=one.id,
                type="message",
                name=gettext("Message %(number)s, %(role)s")
                % {"number": format_number(one.seq), "role": str(ROLES.get(one.role, one.role))},
                text=excerpt(one.text, PREVIEW),
                tokens=one.tokens,
                seq=one.seq,
                is_active=one.id in active,
            )
            for one in (found[id] for id in ids if id in found)
        ]
    return Listing(items=items, offset=offset, total=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the tree: a summary, a message, or a run of messages that stand in the context themselves."""

    span: Span
    messages: Sequence[Span]  # as runs: it may have gaps
    node: Node | None = None
    preview: timeline_queries.MessagePreview | None = None
    model: str = ""
    revisions: int = 1
    is_active: bool = False


def load_roots(about: Inspected, *, offset: int, branch: int | None = None) -> Listing[Row]:
    """Return the summaries that no other one stands for, and the messages in the context between them, by their place.

    :param branch: on whose path; by default on that of the chosen one
    """
    graph, path = queries.load_graph(about.id), path_in(about, branch)
    spans = timeline_queries.load_context_spans(about.id, at=timeline_queries.NOW, path=path)
    roots = graph.roots()
    if path is not None:
        nodes = serving(about.id, graph, path)
        ids = {node.id for node in nodes}
        # On another path a summary may be a source of one that reaches further there.
        standing = [node for node in nodes if node.superseded_seq is None]
        roots = [node for node in standing if ids.isdisjoint(above.id for above in graph.parents(node.id))]
    items: list[Node | Span] = [*roots, *spans]
    items.sort(key=lambda item: item if isinstance(item, tuple) else (item.first_seq, item.last_seq))
    return _summary_rows(about, graph, items, offset)


def load_under(about: Inspected, summary_id: str, *, offset: int) -> Listing[Row]:
    """:raises SummaryNotFoundError: the session has no such summary."""
    graph = queries.load_graph(about.id)
    node = graph.find(summary_id)
    if node.kind == "condensed":
        return _summary_rows(about, graph, graph.sources(summary_id), offset)
    ids = queries.load_sources(node.id, offset=offset, limit=PAGE)
    previews, active = timeline_queries.preview_messages(ids, at=timeline_queries.NOW), standing_items(about.id, ids)
    found = [previews[id] for id in ids if id in previews]
    spans = [(one.seq, one.seq) for one in found]
    rows = [
        Row(span=span, messages=[span], preview=one, is_active=one.id in active)
        for span, one in zip(spans, found, strict=True)
    ]
    return Listing(items=rows, offset=offset, total=node.message_count)


def _summary_rows(about: Inspected, graph: Graph, items: Sequence[Node | Span], offset: int) -> Listing[Row]:
    chosen = items[offset : offset + PAGE]
    nodes = [item for item in chosen if isinstance(item, Node)]
    ids = [node.id for node in nodes]
    messages = queries.messages_of_summaries(graph, nodes, session_id=about.id)
    models, active = queries.models_of_summaries(ids), standing_items(about.id, ids)
    rows = [
        Row(span=item, messages=[item], is_active=True)
        if isinstance(item, tuple)
        else Row(
            span=(item.first_seq, item.last_seq),
            messages=messages[item.id],
            node=item,
            model=show_invisible(models.get(item.id, "")),
            revisions=len(graph.history(item.id)),
            is_active=item.id in active,
        )
        for item in chosen
    ]
    return Listing(items=rows, offset=offset, total=len(items))


@signed_in
def summaries(request: HttpRequest, session_id: str) -> HttpResponse:
    """Render every summary, as a drawing or as a table (``view``), with one chosen (``id``, or ``seq`` of a message)."""
    about = inspected(request, session_id)
    view = request.GET.get("view", "")
    kept = {name: printable(request.GET[name]) for name in ("branch", "id", "seq") if request.GET.get(name)}
    branch = number_in(request, "branch")
    path = path_in(about, branch)
    wanted, chosen = request.GET.get("id", ""), None
    if wanted:
        try:
            chosen = _context(queries.load_summary(wanted, session_id=about.id))
        except SummaryNotFoundError:
            chosen = {"missing": printable(wanted)[:100]}
    context = {
        "about": about,
        "tab": TAB,
        "view": view if view in VIEWS else VIEWS[0],
        "counts": queries.count_summaries(about.id),
        "chosen": chosen,
        "seq": number_in(request, "seq"),
        "branch": path.branch if path else None,
        "links": [(name, f"?{urlencode({'view': name} | kept)}") for name in VIEWS],
    }
    if context["view"] == "table":
        context |= {"rows": load_roots(about, offset=0, branch=branch), "level": 1}
    return render(request, "compaction_app/summaries/summaries.html", context)


@signed_in
@gzip_page
def drawing(request: HttpRequest, session_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    branch = number_in(request, "branch")
    etag = f'"{about.id}:{about.event_seq}:{"" if branch is None else branch}"'
    unchanged = get_conditional_response(request, etag=etag)
    if unchanged is not None:
        return unchanged
    path = path_in(about, branch)
    values = load_drawing(about.id, at=about.event_seq, last_seq=about.message_seq, path=path)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    return JsonResponse(values, json_dumps_params={"separators": (",", ":")}, headers=headers)


@signed_in
def rows(request: HttpRequest, session_id: str) -> HttpResponse:
    """Render more rows of the table: those under a summary (``under``), or the rest of a level (``offset``)."""
    about = inspected(request, session_id)
    under, offset = request.GET.get("under", ""), number_in(request, "offset") or 0
    branch = number_in(request, "branch")
    found = load_under(about, under, offset=offset) if under else load_roots(about, offset=offset, branch=branch)
    level = min(number_in(request, "level") or 1, DEEPEST)
    context = {"about": about, "rows": found, "level": level, "under": printable(under), "branch": branch}
    return render(request, "compaction_app/summaries/_rows.html", context)


@signed_in
def summary(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    return _summary(request, about, queries.load_summary(summary_id, session_id=about.id))


@signed_in
def sources(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    node = queries.load_summary(summary_id, session_id=about.id)
    context = {"about": about, "summary": node, "sources": open_sources(node, offset=number_in(request, "offset") or 0)}
    return render(request, "compaction_app/summaries/_sources.html", context)


@signed_in
def source(request: HttpRequest, session_id: str, summary_id: str, source_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    node = queries.load_summary(summary_id, session_id=about.id)
    kind = {id: kind for kind, id in node.source_ids}.get(source_id)
    if kind is None:
        raise MessageNotFoundError(message_id=source_id)
    context: dict[str, Any] = {"about": about}
    if kind == "summary":
        context["summary"] = queries.load_summary(source_id, session_id=about.id)
    else:
        context["message"] = transcript.load_message(about.id, source_id)
    return render(request, "compaction_app/summaries/_source.html", context)


@signed_in
def missing(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    """Render what of a summary's sources stood nowhere when it was measured."""
    about = inspected(request, session_id)
    found = load_fidelity(queries.load_summary(summary_id, session_id=about.id)).missing
    shown = groupby(found[:MISSING], key=lambda one: one.item.kind)
    kinds = [(MISSING_KINDS[kind], list(items)) for kind, items in shown]
    context = {"about": about, "kinds": kinds, "more": len(found[MISSING:])}
    return render(request, "compaction_app/summaries/_missing.html", context)


@signed_in
def reply(request: HttpRequest, session_id: str, try_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    found = queries.load_reply(try_id, session_id=about.id)
    calls = json.dumps(found["tool_calls"], indent=2, ensure_ascii=False) if found["tool_calls"] else ""
    context = {name: show_invisible(text) for name, text in (found | {"tool_calls": calls}).items()}
    return render(request, "compaction_app/summaries/_reply.html", context)


@signed_in
def message(request: HttpRequest, session_id: str, seq: int) -> HttpResponse:
    about = inspected(request, session_id)
    message_id = timeline_queries.id_of_message(about.id, seq) if seq <= about.message_seq else None
    if message_id is None:
        raise MessageNotFoundError(message_id=str(seq))
    traced = queries.trace_message(message_id, session_id=about.id)
    context = {
        "about": about,
        "preview": timeline_queries.preview_messages([message_id], at=timeline_queries.NOW)[message_id],
        "above": traced.above,
        "in_context": traced.in_context,
        "is_active": traced.in_context == message_id,
        "message": transcript.load_message(about.id, message_id),
    }
    return render(request, "compaction_app/summaries/_message.html", context)


@signed_in
def anywhere(request: HttpRequest, summary_id: str) -> HttpResponse:
    """Redirect a summary's id alone to its page in the inspector of its session."""
    node = queries.load_summary(summary_id)
    try:
        about = inspected(request, node.session_id)
    except SessionNotFoundError:
        # Not even the id of another person's session may be seen.
        raise SummaryNotFoundError(summary_id=summary_id) from None
    if "HX-Request" in request.headers:
        return _summary(request, about, node)
    return redirect("inspect-summary", about.id, node.id)


def _summary(request: HttpRequest, about: Inspected, node: SummaryRecord) -> HttpResponse:
    context = {"about": about, "tab": TAB} | _context(node)
    if "HX-Request" in request.headers:
        return render(request, "compaction_app/summaries/_summary.html", context)
    if about.is_own and node.superseded_seq is None and about.archived_at is None:
        context["models"] = [spec.alias for spec in list_models(user_id=about.owner_id)]
    return render(request, "compaction_app/summaries/summary.html", context)


def _context(node: SummaryRecord) -> dict[str, Any]:
    view = load_view(node)
    rejected = sum(not attempt.accepted for attempt in view.tries)
    claims = load_claims(node)
    return {
        "view": view,
        "summary": node,
        "sources": view.sources,
        "rejected": rejected,
        "marked": marked_summary(node, claims),
        "claims": tally(claims),
    }


OPENS, CLOSES = "\u2e22", "\u2e23"
"""Around each sentence while Markdown is rendered: brackets, since beside those it reads emphasis as it does beside a space."""
SHOWN = 5  # messages that are named
NOTES = {Support.NONE: gettext_lazy("no source"), Support.PARTLY: gettext_lazy("partly")}
_TOKEN = re.compile(rf"""(?P<tag><(?:"[^"]*"|[^">])*>)|(?P<mark>[{OPENS}{CLOSES}])|[^<{OPENS}{CLOSES}]+""")
_ALONE = re.compile(r"</?(a|math)\b")


def marked_summary(summary: SummaryRecord, claims: Sequence[ClaimRecord]) -> SafeString | None:
    """Return a summary as HTML with its sentences marked; ``None`` if it has none that are known."""
    if not claims:
        return None
    pieces = list(_pieces(encode_text(summary.text), claims))
    if summary_html(summary) is not None and OPENS not in summary.text and CLOSES not in summary.text:
        html = render_markdown("".join(text if claim is None else f"{OPENS}{text}{CLOSES}" for claim, text in pieces))
        # The marks may change what Markdown makes of it.
        if html.replace(OPENS, "").replace(CLOSES, "") == render_markdown(summary.text):
            marked = mark_safe("".join(_with_spans(html, [claim for claim, _ in pieces if claim])))  # noqa: S308 - tags are ours
            return format_html('<div class="prose" dir="auto">{}</div>', marked)
    spans = (escape(shown) if claim is None else _span(claim, escape(shown)) + _note(claim) for claim, shown in pieces)
    return format_html('<div class="summary-plain" dir="auto">{}</div>', mark_safe("".join(spans)))  # noqa: S308 - escaped


def rests_on(claim: ClaimRecord) -> str:
    """Return in words what a sentence rests on."""
    numbers = list(dict.fromkeys(message.seq for message in claim.messages))
    shown = ", ".join(format_number(seq) for seq in numbers[:SHOWN])
    if not numbers:
        where = gettext("summaries under it that are not aligned yet")
    elif len(numbers) > SHOWN:
        where = gettext("messages %(numbers)s and %(count)s more") % {"numbers": shown, "count": len(numbers) - SHOWN}
    else:
        where = ngettext("message %(numbers)s", "messages %(numbers)s", len(numbers)) % {"numbers": shown}
    said = {
        Support.QUOTED: gettext("Quoted from %(messages)s."),
        Support.SUPPORTED: gettext("Based on %(messages)s."),
        Support.PARTLY: gettext("Only partly based on %(messages)s."),
        Support.NONE: gettext("No source in the conversation."),
    }
    text = said[claim.support] % {"messages": where}
    if claim.missing:
        is_none = claim.support is Support.NONE
        missing = gettext("Not said: %(facts)s.") if is_none else gettext("Not said there: %(facts)s.")
        text = f"{text} {missing % {'facts': ', '.join(map(show_invisible, claim.missing))}}"
    return text


def _pieces(stored: str, claims: Sequence[ClaimRecord]) -> Iterator[tuple[ClaimRecord | None, str]]:
    """Yield the text in order, as it is shown, with the sentence that each piece is, if it is one."""
    at = 0
    for claim in claims:
        if at <= claim.start < claim.end <= len(stored):
            yield None, show_invisible(decode_text(stored[at : claim.start]))
            yield claim, show_invisible(decode_text(stored[claim.start : claim.end]))
            at = claim.end
    yield None, show_invisible(decode_text(stored[at:]))


def _with_spans(html: str, claims: Sequence[ClaimRecord]) -> Iterator[str]:
    """Yield the HTML with a span around each stretch of a sentence, so that no span crosses another element."""
    waiting, current = iter(claims), None
    is_reached, inside = False, ""  # the element that nothing to point at may stand in
    for token in _TOKEN.finditer(html):
        text = token[0]
        if token["tag"]:
            alone = _ALONE.match(text)
            inside = inside if alone is None else "" if text.startswith("</") else alone[1]
            yield text
        elif text == OPENS:
            current, is_reached = next(waiting, None), False
        elif text == CLOSES:
            if current is not None:
                yield _note(current)
            current = None
        elif current is None or inside == "math" or not text.strip():
            yield text
        else:
            yield _span(current, text, is_first=not is_reached and not inside)
            is_reached = is_reached or not inside


def _span(claim: ClaimRecord, html: str, *, is_first: bool = True) -> str:
    """:param html: escaped"""
    classes = f"claim claim-{claim.support.value}"
    if not is_first:
        return format_html('<span class="{}" data-claim="{}">{}</span>', classes, claim.number, mark_safe(html))  # noqa: S308 - escaped
    sources = " ".join(dict.fromkeys(id for id, _ in claim.places))
    seqs = " ".join(str(seq) for seq in dict.fromkeys(message.seq for message in claim.messages))
    return format_html(
        '<span class="{}" data-claim="{}" data-sources="{}" data-messages="{}" data-rests="{}" role="button"'
        ' aria-pressed="false" tabindex="0">{}</span>',
        *(classes, claim.number, sources, seqs, rests_on(claim), mark_safe(html)),  # noqa: S308 - escaped
    )


def _note(claim: ClaimRecord) -> str:
    note = NOTES.get(claim.support)
    return format_html(' <span class="claim-note claim-note-{}">{}</span>', claim.support.value, note) if note else ""

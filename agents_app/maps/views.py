"""The pages of map runs and of their items: how far a run is, what it took, and what a person may do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, pgettext, pgettext_lazy

from agents_app import queries
from agents_app.templatetags.agents import HEAD, head_of, lay_out
from compaction_app.context.state import rebuild_payload
from files_app.contents import read_content, reading
from files_app.queries import load_file_references
from mnesis_core.errors import FileContentNotFound, InvalidRequest
from mnesis_core.maps.throughput import Ending, RunSpan, intervals_of, seconds_left, spread
from mnesis_core.maps.values import ItemRecord, ItemState, OperatorKind, OperatorSpec, RunRecord, RunState, StopReason
from mnesis_core.records import FileReference
from mnesis_core.text import printable
from sessions_app.llm.usage import draw_run
from sessions_app.pages.formats import (
    format_count,
    format_duration,
    format_money,
    format_number,
    format_size,
    localised,
)
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.views import number_in, reader_of, signed_in
from sessions_app.record.session_queries import load_session, titles_of
from sessions_app.record.turn_queries import load_call
from sessions_app.schemas import place_of, read_place

PAGE = 50
ITEMS = 50
SAMPLE = 400  # items that the charts and the estimate look at
STRETCHES = 40
FAILURES = 3
EXCERPT = 160  # characters of an input, an output or an error in a line of the list
NEAR = 4_194_304  # bytes: a list does not read lines that are further from its first one
TRIES = 50
UNREAD = gettext_lazy("Items appear here once the input has been read.")
NOTHING = {
    "": gettext_lazy("This run has no items."),
    "pending": gettext_lazy("No items are waiting."),
    "running": gettext_lazy("No items are running."),
    "completed": gettext_lazy("No items are completed."),
    "failed": gettext_lazy("No items have failed."),
    "cancelled": gettext_lazy("No items were cancelled."),
}
BAR_WIDTH = 1_000
KINDS = {OperatorKind.LLM: gettext_lazy("LLM map"), OperatorKind.AGENTIC: gettext_lazy("agentic map")}
# A person's own decision needs no words.
REASONS = {
    RunState.PAUSED: {
        StopReason.BUDGET: gettext_lazy(
            "This run has reached its spending limit. Finished items are kept. Resume it when the limit allows."
        ),
        StopReason.ERROR: gettext_lazy("This run was paused because it could not continue. Finished items are kept."),
    },
    RunState.CANCELLED: {
        StopReason.BUDGET: gettext_lazy(
            "This run was stopped because it reached its spending limit. Finished items are kept."
        ),
        StopReason.ERROR: gettext_lazy("This run was stopped because it could not continue. Finished items are kept."),
    },
}
ACTIONS = {
    RunState.PENDING: ("cancel",),
    RunState.RUNNING: ("pause", "cancel"),
    RunState.PAUSED: ("resume", "cancel"),
    RunState.CANCELLED: ("resume",),
}
LABELS = {
    "cancel": pgettext_lazy("what to do with a run", "Cancel"),
    "pause": pgettext_lazy("what to do with a run", "Pause"),
    "resume": pgettext_lazy("what to do with a run", "Resume"),
}
STATES = {
    ItemState.PENDING: pgettext_lazy("items of a run", "Pending"),
    ItemState.RUNNING: pgettext_lazy("items of a run", "Running"),
    ItemState.COMPLETED: pgettext_lazy("items of a run", "Completed"),
    ItemState.FAILED: pgettext_lazy("items of a run", "Failed"),
    ItemState.CANCELLED: pgettext_lazy("items of a run", "Cancelled"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run for lists and its page: ``running`` items are with workers, ``seconds_left`` is ``None`` if not known."""

    record: RunRecord
    file: FileReference | None = None
    running: int = 0
    seconds_left: float | None = None

    @property
    def name(self) -> str:
        path = show_invisible(self.file.path) if self.file else ""
        return path.rstrip("/").rpartition("/")[2] or path or self.record.input_file_id

    @property
    def kind(self) -> str:
        return str(KINDS[self.record.kind])

    @property
    def items(self) -> str:
        return "?" if self.record.counts.items is None else format_number(self.record.counts.items)

    @property
    def done(self) -> int:
        return self.record.counts.completed + self.record.counts.failed

    @property
    def percent(self) -> int:
        items = self.record.counts.items
        return 100 * self.done // items if items else 0 if items is None else 100

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The parts of the bar, which is ``BAR_WIDTH`` units wide."""
        counts = self.record.counts
        parts = (
            (ItemState.COMPLETED, counts.completed),
            (ItemState.FAILED, counts.failed),
            (ItemState.CANCELLED, counts.cancelled),
            (ItemState.RUNNING, self.running),
        )
        segments, at, whole = [], 0, max(1, counts.items or 0)
        for state, count in parts:
            x, end = (min(BAR_WIDTH, round(BAR_WIDTH * number / whole)) for number in (at, at + count))
            if count:
                # A few among very many can be seen all the same.
                segments.append({"state": state, "x": min(x, BAR_WIDTH - 2), "width": max(2, end - x)})
            at += count
        return segments

    @property
    def left(self) -> str:
        seconds = self.seconds_left
        if seconds is None or self.record.state is not RunState.RUNNING or not self.record.counts.left:
            return ""
        # As precise as a guess deserves.
        if seconds < 60:
            if seconds > 45:
                return _("a minute")
            return _("a few seconds") if seconds < 10 else f"{round(seconds / 10) * 10} s"
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 120 else f"{round(seconds / 3_600)} h"

    @property
    def reason(self) -> str:
        reason = self.record.reason
        return str(REASONS.get(self.record.state, {}).get(StopReason(reason), "")) if reason else ""

    @property
    def meter_words(self) -> str:
        counts = self.record.counts
        return _(
            "%(completed)s completed, %(failed)s failed, %(cancelled)s cancelled, %(running)s with workers, of %(items)s items"
        ) % {
            "completed": format_number(counts.completed),
            "failed": format_number(counts.failed),
            "cancelled": format_number(counts.cancelled),
            "running": format_number(self.running),
            "items": self.items,
        }

    @property
    def actions(self) -> list[tuple[str, str]]:
        """The names in the API of what a person may do, with labels."""
        actions = [(name, str(LABELS[name])) for name in ACTIONS.get(self.record.state, ())]
        if self.record.counts.failed and self.record.state in (RunState.COMPLETED, RunState.PAUSED):
            failed = format_number(self.record.counts.failed)
            actions.append(("retry", _("Retry %(count)s failed") % {"count": failed}))
        return actions

    @property
    def states(self) -> list[tuple[str, str, str]]:
        """The name, label and number of items of each state, after those of all items."""
        counts = self.record.counts
        numbers = {
            ItemState.PENDING: max(0, counts.left - self.running),
            ItemState.RUNNING: self.running,
            ItemState.COMPLETED: counts.completed,
            ItemState.FAILED: counts.failed,
            ItemState.CANCELLED: counts.cancelled,
        }
        narrowed = [(state.value, str(STATES[state]), format_number(number)) for state, number in numbers.items()]
        return [("", pgettext("items of a run", "All"), self.items if counts.items is not None else ""), *narrowed]

    @property
    def numbers(self) -> list[tuple[str, str, str]]:
        """The label, value and note of each number that is known."""
        run, counts, done = self.record, self.record.counts, self.done
        per_item = _("%(number)s per item")
        tries = per_item % {"number": localised(f"{counts.tries / done:.2f}")} if done else ""
        is_priced = done and counts.cost_micros
        price = per_item % {"number": format_money(round(counts.cost_micros / done))} if is_priced else ""
        with_workers = format_number(self.running) if run.state.is_live or self.running else ""
        lasted = run.ended_at - run.started_at if run.started_at and run.ended_at else None
        numbers = [
            (_("Completed"), format_number(counts.completed), ""),
            (_("Failed"), format_number(counts.failed), ""),
            (_("Cancelled"), format_number(counts.cancelled) if counts.cancelled else "", ""),
            (_("With workers"), with_workers, _("running or next")),
            (_("Attempts"), format_number(counts.tries), tries),
            (_("Tokens in"), format_count(counts.tokens_input) if counts.tokens_input else "", ""),
            (_("Tokens out"), format_count(counts.tokens_output) if counts.tokens_output else "", ""),
            (_("Cost"), format_money(counts.cost_micros or None), price),
            (_("Took"), "" if lasted is None else format_duration(lasted.total_seconds()), ""),
        ]
        return [(label, value, note) for label, value, note in numbers if value]


def texts_of(spec: OperatorSpec) -> list[tuple[str, str]]:
    schema = "" if spec.schema is None else lay_out(json.dumps(spec.schema, ensure_ascii=False))
    texts = (
        (_("Prompt template"), spec.template),
        (_("System prompt"), spec.system_prompt),
        (_("Schema of results"), schema),
    )
    return [(label, text) for label, text in texts if text]


def facts_of(spec: OperatorSpec, kind: OperatorKind) -> list[tuple[str, str]]:
    names = show_invisible(", ".join(spec.tools or ()))
    at_most, limits = _("at most %(number)s"), spec.limits
    of_agents = [
        (_("Tools"), _("those of the session") if spec.tools is None else names or pgettext("tools", "none")),
        (_("Read-only"), _("yes") if spec.read_only else _("no")),
        (_("Model calls"), _("at most %(number)s per turn") % {"number": spec.max_turns}),
    ]
    cost = "" if limits.cost_micros is None else at_most % {"number": format_money(limits.cost_micros)}
    facts = [
        (_("At a time"), str(spec.concurrency)),
        (_("Attempts"), at_most % {"number": spec.max_retries + 1}),
        (_("Timeout"), _("%(duration)s per attempt") % {"duration": format_duration(spec.timeout_seconds)}),
        (_("Temperature"), "" if spec.temperature is None else localised(f"{spec.temperature:g}")),
        *(of_agents if kind is OperatorKind.AGENTIC else ()),
        (_("Tokens"), "" if limits.tokens is None else at_most % {"number": format_number(limits.tokens)}),
        (_("Cost"), cost),
    ]
    return [(label, value) for label, value in facts if value]


@signed_in
def run_list(request: HttpRequest) -> HttpResponse:
    return render(request, "agents_app/runs/runs.html", _list_context(request))


@signed_in
def run_rows(request: HttpRequest) -> HttpResponse:
    return render(request, "agents_app/runs/_rows.html", _list_context(request))


@signed_in
def run_page(request: HttpRequest, run_id: str) -> HttpResponse:
    run = _run(request, run_id)
    session = load_session(run.session_id, owner_id=reader_of(request))
    sample = _sample(run)
    shown = _view(run, sample)
    context = {
        "title": session.title,
        # Before the parts were read: an event that comes in between is heard, and they are read again.
        "event_seq": session.event_seq,
        "model": run.spec.model or session.model,
        "texts": texts_of(run.spec),
        "facts": facts_of(run.spec, run.kind),
    }
    parts = _progress(shown) | _charts(run, sample) | _items(request, shown)
    return render(request, "agents_app/runs/run.html", context | parts)


@signed_in
def run_progress(request: HttpRequest, run_id: str) -> HttpResponse:
    run = _run(request, run_id)
    return render(request, "agents_app/runs/_progress.html", _progress(_view(run, _sample(run))))


@signed_in
def run_charts(request: HttpRequest, run_id: str) -> HttpResponse:
    run = _run(request, run_id)
    return render(request, "agents_app/runs/_charts.html", _charts(run, _sample(run)))


@signed_in
def run_items(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show items in ``state``, from the number ``from`` on or before ``before``."""
    shown = _view(_run(request, run_id), [])
    found = _items(request, shown)
    response = render(request, "agents_app/runs/_items.html", found)
    address = reverse("run", args=[run_id])
    response.headers["HX-Replace-Url"] = f"{address}?{found['here']}" if found["here"] else address
    return response


@signed_in
def run_item(request: HttpRequest, run_id: str, number: int) -> HttpResponse:
    run = _run(request, run_id)
    item = queries.load_item(run.id, number)
    file = _file(run)
    tries = queries.load_attempt_heads(run.id, number, length=HEAD, most=TRIES)
    context = {
        "run": RunView(record=run, file=file),
        "item": item,
        "title": titles_of([run.session_id], owner_id=run.owner_id).get(run.session_id, ""),
        "input": head_of(
            _read_inputs(file, [item], most=HEAD).get(number, ""),
            is_cut=item.length > HEAD,
            size=format_size(item.length),
        ),
        "accepted": next((entry for entry in tries if entry.accepted), None),
        "tries": tries,
        "previous": number - 1 if number > 1 else None,
        "next": number + 1 if number < (run.counts.items or 0) else None,
    }
    return render(request, "agents_app/runs/item.html", context)


@signed_in
def item_input(request: HttpRequest, run_id: str, number: int) -> HttpResponse:
    run = _run(request, run_id)
    item = queries.load_item(run.id, number)
    return _plain(_read_inputs(_file(run), [item], most=item.length).get(number, ""))


@signed_in
def try_output(request: HttpRequest, run_id: str, number: int, attempt: int) -> HttpResponse:
    return _plain(queries.load_attempt_text(_run(request, run_id).id, number, attempt, "output"))


@signed_in
def try_prompt(request: HttpRequest, run_id: str, number: int, attempt: int) -> HttpResponse:
    """Show what the model was sent in one attempt, made again from the record."""
    run = _run(request, run_id)
    call_id = queries.load_attempt_text(run.id, number, attempt, "call_id")
    rebuilt = rebuild_payload(load_call(call_id, owner_id=run.owner_id))
    context = {"messages": (rebuilt.payload or {}).get("messages", []), "problems": rebuilt.problems}
    return render(request, "agents_app/runs/_try_prompt.html", context | {"call_id": call_id})


@signed_in
def part_runs(request: HttpRequest, session_id: str, part_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    runs = queries.runs_of_part(session.id, part_id)
    return render(request, "agents_app/runs/_part_runs.html", {"runs": _named(runs)})


def _run(request: HttpRequest, run_id: str) -> RunRecord:
    return queries.load_run(run_id, owner_id=reader_of(request))


def _file(run: RunRecord) -> FileReference | None:
    return load_file_references([run.input_file_id], session_ids=[run.session_id]).get(run.input_file_id)


def _sample(run: RunRecord) -> list[ItemRecord]:
    """Return items evenly spread over those that have probably ended, because items start in the order of the input."""
    items = run.counts.items or 0
    reach = min(items, run.counts.ended + SAMPLE // 4)
    return queries.load_items(run.id, spread(reach, most=SAMPLE))


def _view(run: RunRecord, sample: list[ItemRecord]) -> RunView:
    running = queries.count_running(run.id) if run.counts.left else 0
    left, now, endings = None, timezone.now(), endings_of(sample)
    if run.state is RunState.RUNNING:
        left = seconds_left(endings, spell_of(run, endings, now), open_items=run.counts.left)
    return RunView(record=run, file=_file(run), running=running, seconds_left=left)


def _progress(run: RunView) -> dict[str, Any]:
    id, failed = run.record.id, [ItemState.FAILED]
    failures = queries.list_items(id, limit=FAILURES, states=failed) if run.record.counts.failed else []
    return {"run": run, "failures": failures}


def _charts(run: RunRecord, sample: list[ItemRecord]) -> dict[str, Any]:
    endings = endings_of(sample)
    spell = spell_of(run, endings, timezone.now())
    throughput, spending = draw_run(intervals_of(endings, spell, most=STRETCHES)) or (None, None)
    return {
        "throughput": throughput,
        "spending": spending,
        "sampled": format_number(len(endings)) if len(endings) < spell.ended else "",
    }


def _items(request: HttpRequest, run: RunView) -> dict[str, Any]:
    name = request.GET.get("state", "")
    try:
        state = ItemState(name) if name else None
    except ValueError:
        raise InvalidRequest(gettext_noop("state must be a state of items"), field="state") from None
    start, before = number_in(request, "from"), number_in(request, "before")
    rows = queries.page_of_items(run.record.id, start=max(1, start or 1), before=before, state=state, limit=ITEMS + 1)
    items = rows[-ITEMS:] if before is not None else rows[:ITEMS]
    inputs = _read_inputs(run.file, items, most=4 * EXCERPT)
    numbers = [item.number for item in items if item.state is ItemState.COMPLETED]
    outputs = queries.load_result_heads(run.record.id, numbers, length=4 * EXCERPT) if numbers else {}
    earlier, later = "", ""
    if items and items[0].number > 1:
        number = items[0].number
        if state is None or queries.has_item_before(run.record.id, number, state=state):
            earlier = _query(state=name, before=number)
    if items and (len(rows) > ITEMS or before is not None):
        later = _query(state=name, **{"from": items[-1].number + 1})
    return {
        "run": run,
        "items": [(item, inputs.get(item.number, ""), outputs.get(item.number, "")) for item in items],
        "state": name,
        "states": run.states,
        "from": start or "",
        "here": _query(state=name, **{"from": start or "", "before": before or ""}),
        "first": format_number(items[0].number) if items else "",
        "last": format_number(items[-1].number) if items else "",
        "earlier": earlier,
        "later": later,
        "nothing": UNREAD if run.record.state is RunState.PENDING else NOTHING[name],
    }


def _query(**values: Any) -> str:
    return urlencode({name: value for name, value in values.items() if value != ""})


def _list_context(request: HttpRequest) -> dict[str, Any]:
    owner_id, session_id, cursor = reader_of(request), request.GET.get("session", ""), request.GET.get("cursor", "")
    session = load_session(session_id, owner_id=owner_id) if session_id else None
    before = read_place(cursor or None)
    runs = queries.list_runs(owner_id=owner_id, session_id=session_id or None, before=before, limit=PAGE + 1)
    page = runs[:PAGE]
    titles = {} if session or not page else titles_of({run.session_id for run in page}, owner_id=owner_id)
    return {
        "runs": [(run, None if session else titles.get(run.record.session_id, "")) for run in _named(page)],
        "next_cursor": place_of(page[-1].created_at, page[-1].id) if len(runs) > PAGE else "",
        "is_first_page": not cursor,
        "session": session,
        "session_title": "" if session is None else session.title,
    }


def _named(runs: list[RunRecord]) -> list[RunView]:
    if not runs:
        return []
    session_ids = list({run.session_id for run in runs})
    files = load_file_references([run.input_file_id for run in runs], session_ids=session_ids)
    return [RunView(record=run, file=files.get(run.input_file_id)) for run in runs]


def _plain(text: str) -> HttpResponse:
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(text), content_type="text/plain; charset=utf-8")


def spell_of(run: RunRecord, endings: Sequence[Ending], now: datetime) -> RunSpan:
    """Return the time and the sums of a whole run; a stopped run has lasted until the last of these endings."""
    counts = run.counts
    stood_still = max((ending.at for ending in endings), default=now)
    return RunSpan(
        began=run.started_at or run.created_at,
        until=run.ended_at or (now if run.state.is_live else stood_still),
        ended=counts.completed + counts.failed,
        tokens=counts.tokens_input + counts.tokens_output,
        cost_micros=counts.cost_micros,
    )


def endings_of(items: Sequence[ItemRecord]) -> list[Ending]:
    return [
        Ending(
            at=item.ended_at,
            is_failed=item.state is ItemState.FAILED,
            tokens=item.tokens_input + item.tokens_output,
            cost_micros=item.cost_micros,
        )
        for item in items
        if item.ended_at is not None and item.state in (ItemState.COMPLETED, ItemState.FAILED)
    ]


def _read_inputs(file: FileReference | None, items: Sequence[ItemRecord], *, most: int) -> dict[int, str]:
    """Return the beginnings of items' lines by number, at most ``most`` bytes of each.

    Lines that are too far from the first one are absent, and so is every line where the input is not kept here.
    """
    if file is None or not items:
        return {}
    if len(items) == 1:  # a reader that reads ahead would fetch far more than one line
        with suppress(FileContentNotFound):
            line = read_content(file.content_id, items[0].offset, min(items[0].length, most))
            return {items[0].number: line.decode(errors="replace").rstrip("\r\n")}
        return {}
    near = [item for item in items if item.offset - items[0].offset < NEAR]
    with suppress(FileContentNotFound), reading(file.content_id) as read:
        lines = {item.number: read(item.offset, min(item.length, most)) for item in near}
        return {number: line.decode(errors="replace").rstrip("\r\n") for number, line in lines.items()}
    return {}

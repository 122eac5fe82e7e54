"""The active context and compactions, the same at every endpoint, and the panels of the session page about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext, pgettext
from ninja import Field
from pydantic import BeforeValidator

from compaction_app.context.fidelity import add_up, load_measured
from compaction_app.context.retrieval import retrieve
from compaction_app.context.state import Meter, load_frame, load_meter, load_state
from compaction_app.queries import list_runs, list_runs_between, load_heads, written_by
from mnesis_core.context.branches import END, Path, Span
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.tokens import CountSource
from mnesis_core.records import RunRecord
from mnesis_core.spending import lines_of
from mnesis_core.text import printable_json
from sessions_app.conf import list_models, session_config
from sessions_app.llm.limits import limits_now, look
from sessions_app.pages.formats import format_count, localised
from sessions_app.pages.views import number_in, reader_of, signed_in
from sessions_app.record.branch_queries import path_in
from sessions_app.record.context_queries import load_spans
from sessions_app.record.session_queries import load_session
from sessions_app.record.timeline_queries import spans_out_of_context
from sessions_app.schemas import Out

ContextFormat = Literal["mnesis", "openai_chat", "openai_responses", "anthropic", "gemini"]
# What the meter draws, in this order; anything else that the breakdown has comes after.
SEGMENTS = {
    "system": gettext_lazy("System prompt"),
    "tools": gettext_lazy("Tools"),
    "facts": gettext_lazy("Facts"),
    "summaries": gettext_lazy("Summaries"),
    "passages": gettext_lazy("Passages found"),
    "messages": gettext_lazy("Messages"),
    "tool_outputs": gettext_lazy("Tool outputs"),
    "files": gettext_lazy("Files"),
}
WINDOW_SOURCES = {
    "configured": gettext_lazy("as configured"),
    "litellm": gettext_lazy("as litellm's table says"),
    "default": gettext_lazy("assumed, because its size is not known"),
    "provider": gettext_lazy("as its provider said when it refused a longer prompt"),
}
BAR_WIDTH = 1000


class TryOut(Out):
    """One attempt at a summary, or at a piece of one."""

    id: str
    call_id: str | None
    summary_id: str
    kind: str
    level: int
    piece: int
    pieces: int
    target_tokens: int | None
    prompt_version: str
    accepted: bool
    reason: str
    input_tokens: Annotated[int, Field(validation_alias="tokens_input")]
    output_tokens: Annotated[int, Field(validation_alias="tokens_output")]
    source: Annotated[str, Field(validation_alias="usage_source")]
    cost_micros: int | None
    created_at: datetime


class CompactionOut(Out):
    """A compaction."""

    id: str
    state: str
    trigger: str
    turn_ids: list[str]  # the only turns that it may summarise; empty for no such restriction
    attempts: int  # workers that have taken it up; more than one when one died
    outcome: str | None
    level: int | None
    tries: list[TryOut]
    tokens_before: int | None
    tokens_after: int | None
    summary_id: Annotated[
        str | None, Field(validation_alias="summary_ids"), BeforeValidator(lambda ids: ids[-1] if ids else None)
    ]
    summary_ids: list[str]
    source_count: int | None
    pruned_parts: int | None
    cost_micros: int | None
    error: Annotated[dict[str, Any] | None, BeforeValidator(lambda error: error and printable_json(asdict(error)))]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


def show_context(
    session_id: str, *, owner_id: int, provider: ContextFormat, at: int | None, question: str
) -> dict[str, Any]:
    """Return what a model would see now, or saw as of event ``at``: as messages, or in the format of a provider.

    :param question: what will be asked next; passages that may answer it then end the prompt
    :raises SessionNotFoundError: it is not there, or belongs to another person.
    :raises InvalidRequest: both an event and a question are named.
    """
    if question and at is not None:
        raise InvalidRequest(gettext_noop("a question is about the context of now: leave out at"), field="question")
    load_session(session_id, owner_id=owner_id)
    state = load_state(session_id, at=at)
    passages = retrieve(state, question) if question else None
    built = state.build(format="openai_chat" if provider == "mnesis" else provider, passages=passages)
    body: dict[str, Any] = {
        "budget": asdict(built.budget) | {"window_source": state.spec.context_window_source},
        "estimate": {"tokens": built.assembled.used_tokens} | state.calibration.as_dict(),
        "pressure": built.pressure.value,
        "breakdown": asdict(built.assembled.breakdown),
        "manifest": list(built.assembled.manifest),
        "digest": built.digest,
        "left_out": [asdict(item) for item in built.assembled.left_out],
    }
    if provider != "mnesis":
        return body | {"payload": built.payload}
    return body | {"messages": printable_json([asdict(message) for message in built.assembled.messages])}


@signed_in
def context_panel(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    branch = number_in(request, "branch")
    meter = load_meter(session.id, branch=branch)
    last = next(iter(list_runs(session.id, limit=1)), None)
    limits = [(line, allowance.spent) for allowance in look(limits_now(session)) for line in lines_of([allowance])]
    is_chosen = branch is None or branch == session.branch
    larger = ""
    if meter.used_tokens > meter.usable_tokens:
        # The model with the smallest window in which everything fits.
        models = sorted(list_models(user_id=reader_of(request)), key=lambda spec: spec.context_window)
        fits = (spec.alias for spec in models if spec.context_window - spec.max_output_tokens >= meter.used_tokens)
        larger = next(fits, "")
    context = {"session": session, "view": view_meter(meter), "meter": meter, "last": last, "limits": limits}
    context |= {"branch": branch, "is_chosen": is_chosen, "larger": larger}
    return render(request, "compaction_app/_context.html", context)


@signed_in
def compactions(request: HttpRequest, session_id: str) -> HttpResponse:
    """Render the compactions that ended between the messages ``first`` and ``last``, oldest first, and the running one.

    They are those whose work serves a branch, by default the chosen one.
    """
    session = load_session(session_id, owner_id=reader_of(request))
    path = path_in(session, number_in(request, "branch"))
    first, last = number_in(request, "first") or 0, number_in(request, "last")
    runs = list_runs_between(session.id, first=first, last=last)[::-1]
    ids = [id for run in runs for id in run.summary_ids]
    heads = load_heads(ids, session_id=session.id) if ids else {}
    measured = load_measured(session.id) if ids else {}
    bound = session_config(session.config).compaction.fidelity_bound
    if path is not None:
        spans = {span.id: span for span in load_spans(session.id)}
        runs = [run for run in runs if _serves(run, spans, path)]
    dividers = [
        {
            "run": run,
            "summaries": [heads[id] for id in run.summary_ids if id in heads],
            "progress": _progress(run) if run.state == "running" else None,
            "fidelity": add_up([measured[id] for id in run.summary_ids if id in measured], bound=bound),
        }
        for run in runs
    ]
    out = spans_out_of_context(session.id, first=first, last=last, path=path)
    return render(request, "compaction_app/_dividers.html", {"session": session, "dividers": dividers, "out": out})


def _serves(run: RunRecord, spans: Mapping[str, Span], path: Path) -> bool:
    """Return whether a summary of a compaction stands for messages of a path, or else whether it was asked for there."""
    written = [spans[id] for id in run.summary_ids if id in spans]
    if written:
        return any(path.has(span.branch, span.last_seq) for span in written)
    return path.has(run.branch, END if run.after_message_seq is None else max(run.after_message_seq, 1))


def view_meter(meter: Meter) -> dict[str, Any]:
    """Put a meter's numbers on one scale: the model's whole window, or more if more is used."""
    scale = max(meter.window, meter.usable_tokens, meter.used_tokens, 1)
    held = _held(meter)
    return {
        "held": held,
        "left_out": max(0, meter.used_tokens - held) if meter.used_tokens > meter.usable_tokens else 0,
        "segments": _segments(meter, scale),
        "window_source": WINDOW_SOURCES[meter.window_source],
        "percent": round(100 * meter.used_tokens / max(1, meter.usable_tokens)),  # of the usable window
        "soft_x": _place(meter.soft_tokens, scale),
        "hard_x": _place(meter.hard_tokens, scale),
        "used_width": _place(meter.used_tokens, scale),
        "counted": _counted(meter),
    }


def _counted(meter: Meter) -> str:
    """Return how the tokens are known, as ``describe_count`` says it."""
    correction = f"{100 * (meter.ratio - 1):+.0f}\N{NO-BREAK SPACE}%"
    if meter.source == CountSource.PROVIDER:
        text = ngettext(
            "Estimate, within %(missed)s of what the provider counted in %(count)s call.",
            "Estimate, within %(missed)s of what the provider counted in %(count)s calls.",
            meter.samples,
        )
        missed = localised(f"{100 * (meter.error or 0):.1f}\N{NO-BREAK SPACE}%")
        return text % {"missed": missed, "count": meter.samples}
    if meter.source == CountSource.MODEL:
        text = _("Estimate, corrected as in other sessions with this model (%(correction)s).")
        return text % {"correction": correction}
    if meter.ratio != 1:
        text = _("Estimate, raised by %(correction)s after the provider refused a prompt as too long.")
        return text % {"correction": correction}
    return _("Estimate; the provider has not reported a count yet.")


def _held(meter: Meter) -> int:
    """Return how many tokens the next prompt holds."""
    return sum(tokens for name, tokens in meter.breakdown.items() if tokens > 0 and name != "free")


def _segments(meter: Meter, scale: int) -> list[dict[str, Any]]:
    known = {name: tokens for name, tokens in meter.breakdown.items() if tokens > 0 and name != "free"}
    parts = [(name, str(SEGMENTS[name]), known[name]) for name in SEGMENTS if name in known]
    parts += [("other", name.replace("_", " "), known[name]) for name in known if name not in SEGMENTS]
    held = _held(meter)
    if meter.used_tokens > meter.usable_tokens:
        parts.append(("overflow", _("Does not fit"), max(0, meter.used_tokens - held)))
    else:
        parts.append(("free", pgettext("part of a context window", "Free"), max(0, meter.usable_tokens - held)))
        parts.append(
            ("reserved", pgettext("part of a context window", "Reserved"), max(0, meter.window - meter.usable_tokens))
        )
    segments, at = [], 0
    for name, label, tokens in parts:
        x, share = _place(at, scale), 100 * tokens / max(1, meter.usable_tokens)
        percent = (
            "" if name in ("reserved", "overflow") else "<1 %" if 0 < share < 0.5 else localised(f"{share:,.0f} %")
        )
        at += tokens
        said = {"name": name, "label": label, "tokens": format_count(tokens), "percent": percent}
        segments.append(said | {"x": x, "width": _place(at, scale) - x})
    return segments


def _place(tokens: int, scale: int) -> int:
    return min(BAR_WIDTH, round(BAR_WIDTH * tokens / scale))


def _progress(run: RunRecord) -> dict[str, Any]:
    """Return how far a running compaction is; ``wanted`` is ``None`` where it goes on as long as it finds anything."""
    count, saved = written_by(run.id)
    saved += run.pruned_tokens or 0
    # A manual compaction does not stop at the low mark.
    target = load_frame(run.session_id).budget.target if run.trigger != "manual" else None
    wanted = None if target is None or run.tokens_before is None else max(1, run.tokens_before - target)
    summaries = ngettext("%(count)s summary so far", "%(count)s summaries so far", count) % {"count": count}
    tokens = _("%(saved)s of %(wanted)s tokens saved") if wanted else _("%(saved)s tokens saved")
    tokens %= {"saved": format_count(saved), "wanted": format_count(wanted)}
    rejected = sum(not attempt.accepted for attempt in run.tries)
    refused = _("%(count)s rejected") % {"count": rejected} if rejected else ""
    return {
        "saved": min(saved, wanted) if wanted else saved,
        "wanted": wanted,
        "words": " · ".join(filter(None, (summaries, tokens, refused))),
    }

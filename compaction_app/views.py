"""The panels that the session page asks for: the context meter, and where the conversation was compacted."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.context import Meter, load_meter
from compaction_app.dividers import load_dividers, shown_run
from compaction_app.queries import list_runs
from mnesis_core.calibration import words_of
from mnesis_core.record import SessionRecord
from mnesis_core.spending import lines_of
from sessions_app.inspect_queries import spans_out_of_context
from sessions_app.queries import load_session
from sessions_app.rendering import format_count
from sessions_app.spending import limits_now, look
from sessions_app.views import number_in, reader_of, signed_in

SEGMENTS = {
    "system": "System prompt",
    "tools": "Tools",
    "summaries": "Summaries",
    "messages": "Messages",
    "tool_outputs": "Tool outputs",
    "files": "Files",
}
"""What the meter draws, in this order; anything else that the breakdown has comes after."""
WINDOW_SOURCES = {
    "configured": "as configured",
    "litellm": "as litellm's table says",
    "default": "assumed, because nobody says how large it is",
    "provider": "as its provider said when it refused a longer prompt",
}
BAR_WIDTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of the bar, in its own units of ``BAR_WIDTH``."""

    name: str
    label: str
    tokens: str
    percent: str
    x: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMeter:
    """The context meter as the page draws it."""

    segments: list[Segment]
    used: str
    usable: str
    window: str
    window_source: str
    percent: int
    """Of usable."""
    pressure: str
    """``none``, ``soft`` or ``hard``."""
    soft: str
    hard: str
    soft_x: int
    hard_x: int
    used_width: int
    counted: str
    """How the tokens were counted, and how well."""


@signed_in
def context_panel(request: HttpRequest, session_id: str) -> HttpResponse:
    """How full the context is, and with what."""
    session = load_session(session_id, owner_id=reader_of(request))
    meter = shown_meter(load_meter(session.id))
    last = next(map(shown_run, list_runs(session.id, limit=1)), None)
    context = {"session": session, "meter": meter, "last": last, "allowances": shown_allowances(session)}
    return render(request, "compaction_app/_context.html", context)


@signed_in
def compactions(request: HttpRequest, session_id: str) -> HttpResponse:
    """The dividers that belong between the messages ``first`` and ``last``, and the compaction that runs now."""
    session = load_session(session_id, owner_id=reader_of(request))
    first, last = number_in(request, "first") or 0, number_in(request, "last")
    context = {"session": session, "runs": load_dividers(session.id, first=first, last=last)}
    context["out"] = spans_out_of_context(session.id, first=first, last=last)
    return render(request, "compaction_app/_dividers.html", context)


def shown_meter(meter: Meter) -> ShownMeter:
    """Put a meter's numbers on one scale: the model's whole window, or more if more is used."""
    scale = max(meter.window, meter.usable_tokens, meter.used_tokens, 1)
    return ShownMeter(
        segments=_segments(meter, scale),
        used=format_count(meter.used_tokens),
        usable=format_count(meter.usable_tokens),
        window=format_count(meter.window),
        window_source=WINDOW_SOURCES[meter.window_source],
        percent=round(100 * meter.used_tokens / max(1, meter.usable_tokens)),
        pressure=meter.pressure.value,
        soft=format_count(meter.soft_tokens),
        hard=format_count(meter.hard_tokens),
        soft_x=_place(meter.soft_tokens, scale),
        hard_x=_place(meter.hard_tokens, scale),
        used_width=_place(meter.used_tokens, scale),
        counted=words_of(source=meter.source, ratio=meter.ratio, samples=meter.samples, error=meter.error),
    )


def _segments(meter: Meter, scale: int) -> list[Segment]:
    known = {name: tokens for name, tokens in meter.breakdown.items() if tokens > 0 and name != "free"}
    parts = [(name, SEGMENTS[name], known[name]) for name in SEGMENTS if name in known]
    parts += [("other", name.replace("_", " "), known[name]) for name in known if name not in SEGMENTS]
    held = sum(tokens for _, _, tokens in parts)
    if meter.used_tokens > meter.usable_tokens:
        parts.append(("overflow", "Does not fit", max(0, meter.used_tokens - held)))
    else:
        parts.append(("free", "Free", max(0, meter.usable_tokens - held)))
        parts.append(("reserved", "Reserved", max(0, meter.window - meter.usable_tokens)))
    segments, at = [], 0
    for name, label, tokens in parts:
        segments.append(_segment(name, label, at, tokens, scale, meter.usable_tokens))
        at += tokens
    return segments


def _segment(name: str, label: str, at: int, tokens: int, scale: int, usable: int) -> Segment:
    x = _place(at, scale)
    share = 100 * tokens / max(1, usable)
    percent = "" if name == "reserved" else "<1 %" if 0 < share < 0.5 else f"{share:,.0f} %"
    return Segment(
        name=name, label=label, tokens=format_count(tokens), percent=percent, x=x, width=_place(at + tokens, scale) - x
    )


def _place(tokens: int, scale: int) -> int:
    return min(BAR_WIDTH, round(BAR_WIDTH * tokens / scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLimit:
    """A limit as the page shows it."""

    words: str
    is_near: bool
    unpriced_calls: int
    """Calls that count as nothing, since nobody knows their price; only where money is limited."""


def shown_allowances(session: SessionRecord) -> list[ShownLimit]:
    """Every limit that the session's next call draws on."""
    return [
        ShownLimit(
            words=line.words,
            is_near=line.is_near,
            unpriced_calls=allowance.spent.unpriced_calls if line.measure == "cost_micros" else 0,
        )
        for allowance in look(limits_now(session))
        for line in lines_of([allowance])
    ]

"""A session as one HTML page that needs nothing else and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from audit_app.readable import Entry, Opening, format_time
from sessions_app.rendering import MARKDOWN_LIMIT, render_markdown

_MARK = "<!-- entries -->"


def html_pieces(opening: Opening, entries: Iterable[Entry]) -> Iterator[str]:
    """A session as HTML, piece by piece."""
    context = {
        "opening": opening,
        "style": mark_safe(f"<style>{_style()}</style>"),  # noqa: S308 - our own file
        "policy": _policy(),
        "mark": mark_safe(_MARK),  # noqa: S308
    }
    head, _, tail = render_to_string("audit_app/transcript.html", context).partition(_MARK)
    yield head
    for entry in entries:
        yield _entry(entry)
    yield tail


def _entry(entry: Entry) -> str:
    blocks = [(block, render_markdown(block.prose) if _is_prose(block.prose) else None) for block in entry.blocks]
    context = {"entry": entry, "time": format_time(entry.at) if entry.at else "", "blocks": blocks}
    return render_to_string("audit_app/_entry.html", context)


def _is_prose(text: str) -> bool:
    return 0 < len(text) <= MARKDOWN_LIMIT


@cache
def _style() -> str:
    return render_to_string("audit_app/transcript.css")


@cache
def _policy() -> str:
    """Nothing is fetched or run: the page's own style is known by its digest."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"

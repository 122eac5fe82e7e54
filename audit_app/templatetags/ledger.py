"""Filters that put a verification, and what it found, on the page of the ledger."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from audit_app.store import Found, VerificationRecord
from mnesis_core.records import find_ids
from sessions_app.pages.formats import format_duration, format_number

LONG_WAIT_SECONDS = 20
MANY = 2_000  # with fewer entries, how quickly they were read says nothing
KINDS = {
    "chain": _("An entry was edited, swapped or removed."),
    "head": _("The end was cut off, or the hashes were recomputed."),
    "row": _("A row or a value was edited."),
    "missing": _("A row was removed."),
    "unexplained": _("A row or a value was added."),
    "replay": _("A state, a context item or a counter was changed."),
    "content": _("The bytes of a file were changed or removed."),
    "owner": _("The session was given to another account or organisation."),
    "search": _("The search index does not match the record."),
    "damage": _("The database cannot read what was written."),
    "guard": _("A guard of the database is missing."),
}

register = template.Library()


@register.filter
def meaning(kind: str) -> str:
    return str(KINDS.get(kind, ""))


@register.filter
def first_id(text: str) -> str:
    return next(iter(find_ids(text)), "")


@register.filter
def minus(number: int, other: int) -> int:
    return number - other


@register.filter
def waited(record: VerificationRecord | None) -> str:
    """Return how long a verification has waited for a worker, if that is longer than it should be."""
    if record is None or record.state != "queued":
        return ""
    seconds = _seconds_since(record.asked_at)
    return format_duration(seconds) if seconds > LONG_WAIT_SECONDS else ""


@register.filter
def entries_done(record: VerificationRecord) -> int:
    return min(record.entries_done, record.entries_total)


@register.filter
def pace(work: VerificationRecord | Found) -> str:
    """Return how quickly entries are verified, if enough of them are to tell."""
    if isinstance(work, Found):
        entries, seconds = work.entries, work.duration_ms / 1000
    else:
        entries = entries_done(work)
        seconds = _seconds_since(work.started_at) if work.started_at else 0
    if entries < MANY or seconds <= 0.05:
        return ""
    return gettext("%(entries)s entries a second") % {"entries": format_number(round(entries / seconds))}


def _seconds_since(moment: datetime) -> float:
    return (timezone.now() - moment).total_seconds()

"""Filters that put a file on a page."""

from __future__ import annotations

from django import template

from files_app.contents import find_size
from mnesis_core.records import FileReference
from sessions_app.pages.markdown import format_size, show_invisible

register = template.Library()


@register.filter
def file_name(file: FileReference) -> str:
    """Return the last part of its path."""
    path = show_invisible(file.path)
    return path.rstrip("/").rpartition("/")[2] or path or file.id


@register.filter
def file_size(file: FileReference) -> str:
    """Return how large its content is; nothing where the content is not kept here."""
    octets = find_size(file.content_id) if file.size is None else file.size
    return "" if octets is None else format_size(octets)

"""Filters that put the labels of a session on a page."""

from __future__ import annotations

from urllib.parse import urlencode

from django import template
from django.urls import reverse

from sessions_app.pages.session_list import label_text

register = template.Library()
register.filter(label_text)


@register.filter
def first_labels(labels: dict[str, str], number: int) -> list[tuple[str, str]]:
    # Not labels.items in the template: a label may be called "items".
    return list(labels.items())[:number]


@register.filter
def label_address(label: tuple[str, str]) -> str:
    """Return the address of the list of all sessions that have it."""
    key, value = label
    return f"{reverse('session-list')}?{urlencode({'label': f'{key}={value}'}, errors='replace')}"

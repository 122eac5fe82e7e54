"""Times on pages: drawn for the browser, which writes them in its own zone, and readable without scripts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.template import Context, Template
from django.utils import translation

AT = datetime(2026, 11, 30, 14, 5, 9, tzinfo=UTC)


def drawn(at: datetime | None, form: str) -> str:
    return Template('{% time at "' + form + '" %}').render(Context({"at": at}))


@pytest.mark.parametrize(
    ("language", "form", "shown"),
    [
        ("en", "clock", "30 Nov 2026, 14:05"),
        ("en", "relative", "30 Nov 2026"),
        ("de", "clock", "30. Nov. 2026, 14:05"),
        ("de", "relative", "30. Nov. 2026"),
    ],
)
def test_a_time_is_exact_for_the_browser_and_in_the_page_s_language(language: str, form: str, shown: str) -> None:
    with translation.override(language):
        assert drawn(AT, form) == f'<time datetime="2026-11-30T14:05:09+00:00" data-{form}>{shown}</time>'


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    assert drawn(AT.astimezone(timezone(timedelta(hours=5))), "clock") == drawn(AT, "clock")


def test_what_has_no_time_has_none_and_not_that_of_now() -> None:
    assert drawn(None, "clock") == ""

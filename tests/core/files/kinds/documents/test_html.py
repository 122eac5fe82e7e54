"""What is said of HTML."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import markup
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource

PAGE = b"""<!doctype html><html lang="en"><head><title>A &amp; B</title><style>h1 {}</style></head><body>
<h1>First <b>one</b></h1><p>Some words. <a href="https://example.com/x">link</a></p><h2>Second</h2>
<form method="post" action="/send"><input></form><table></table><script>var hidden = "<h1>no</h1>";</script></body></html>"""


def test_title_outline_and_counts_are_told(source: MakeSource) -> None:
    assert markup.explore_html(source("a.html", PAGE)).lines == [
        "Title: A & B, language en",
        "6 words; 1 link, 1 form, 1 table, 1 script, 1 input",
        "Headings:",
        "First one",
        "  Second",
        "Forms: POST /send",
        "Links to example.com",
        "Text: First one Some words. link Second",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("tag", [b"<a ", b"<!--", b"<title>", b'<a b="', b"&#", b"</"])
def test_what_is_never_closed_ends_soon(source: MakeSource, tag: bytes) -> None:
    found = markup.explore_html(source("a.html", b"<p>" + tag * 300_000))
    assert found.lines[0].startswith("Title: ")


def test_what_has_no_tag_is_unreadable(source: MakeSource) -> None:
    with pytest.raises(Unreadable, match="no HTML tag"):
        markup.explore_html(source("a.html", b"hello"))

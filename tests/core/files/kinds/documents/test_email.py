"""What is said of mails."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import text
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource

MAIL = b"""From: =?utf-8?q?J=C3=BCrgen?= <j@example.com>
To: a@example.com
Subject: Hi
Date: Fri, 20 Apr 2001 19:35:02 -0400
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=B

--B
Content-Type: text/plain; charset=utf-8

Hello there.

Bye.
--B
Content-Type: application/pdf
Content-Disposition: attachment; filename="a.pdf"
Content-Transfer-Encoding: base64

QUJD
--B--
"""


def test_headers_parts_attachments_and_text_are_told(source: MakeSource) -> None:
    assert text.explore_email(source("a.eml", MAIL)).lines == [
        "From: Jürgen <j@example.com>",
        "To: a@example.com",
        "Subject: Hi",
        "Date: Fri, 20 Apr 2001 19:35:02 -0400",
        "2 parts: text/plain, application/pdf",
        "1 attachment: a.pdf (application/pdf, 3 bytes)",
        "It begins:",
        "Hello there.",
        "Bye.",
    ]


def test_very_many_parts_are_cut(source: MakeSource) -> None:
    data = b"From: a\nContent-Type: multipart/mixed; boundary=B\n\n" + b"--B\n\nx\n" * 1_000
    assert text.explore_email(source("a.eml", data)).lines[1].startswith("100 parts or more")


@pytest.mark.parametrize("header", [b"=?utf-8?b?////?=", b"=?no-such?q?a?=", b"\xff\xfe", b"=?utf-8?q?a?=" * 10_000])
def test_a_broken_header_is_shown_somehow(source: MakeSource, header: bytes) -> None:
    found = text.explore_email(source("a.eml", b"Subject: " + header + b"\n\nx"))
    assert found.lines[0].startswith("Subject:")
    assert len(found.lines[0]) < 300


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" * 100])
def test_what_is_no_mail_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="neither sender"):
        text.explore_email(source("a.eml", data))

"""PDF: pages, title, outline and the text of the first pages."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from mnesis_core.files.kinds.pdf import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def written(*texts: str, password: str | None = None) -> bytes:
    writer = PdfWriter()
    font = DictionaryObject({NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")})
    font[NameObject("/BaseFont")] = NameObject("/Helvetica")
    for text in texts:
        page = writer.add_blank_page(200, 200)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F"): font})}
        )
        content = DecodedStreamObject()
        content.set_data(f"BT /F 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    writer.add_metadata({"/Title": "A title\nSecond line", "/Author": "Somebody"})
    chapter = writer.add_outline_item("Chapter", 0)
    writer.add_outline_item("Section", 0, parent=chapter)
    if password is not None:
        writer.encrypt(password, "owner", algorithm="RC4-128")
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


def test_pages_title_outline_and_first_texts_are_told(source: MakeSource) -> None:
    findings = explore(source("a.pdf", written("Hello", "two", "three", "four")))
    lines = list(findings.lines)
    assert lines[:3] == ["PDF, 4 pages", "Title: A title Second line", "Author: Somebody"]
    assert lines[-4:] == [
        "Outline: Chapter, Section",
        "Page 1 begins: Hello",
        "Page 2 begins: two",
        "Page 3 begins: three",
    ]
    assert findings.covered == "the text of the first 3 of 4 pages"


def test_pages_without_text_say_so(source: MakeSource) -> None:
    assert "Its first pages have no text; they may be pictures of pages" in explore(source("a.pdf", written(""))).lines


def test_a_file_that_is_encrypted_without_a_password_is_read(source: MakeSource) -> None:
    assert "Page 1 begins: Hello" in explore(source("a.pdf", written("Hello", password=""))).lines


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (written("secret", password="word"), "encrypted"),
        (b"", "not readable as PDF"),
        (b"%PDF-1.7\n", "not readable as PDF"),
        (written("cut")[:-60], "not readable as PDF"),
        (b"text", "not readable as PDF"),
        (b"%PDF-1.4\n" + b"[" * 200_000, "not readable as PDF"),
    ],
)
def test_what_cannot_be_read_says_why(source: MakeSource, data: bytes, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        explore(source("a.pdf", data))


def test_a_page_that_unpacks_to_very_much_is_not_taken_for_text(source: MakeSource) -> None:
    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    content = DecodedStreamObject()
    content.set_data(b" " * 20_000_000)
    page[NameObject("/Contents")] = writer._add_object(content.flate_encode())
    target = io.BytesIO()
    writer.write(target)
    assert (
        "Its first pages have no text; they may be pictures of pages"
        in explore(source("a.pdf", target.getvalue())).lines
    )

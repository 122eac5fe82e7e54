"""Word documents: outline, words, tables and pictures."""

from __future__ import annotations

import io

import docx
import pytest
from PIL import Image

from mnesis_core.files.detection import detect
from mnesis_core.files.detection import explore as explore_any
from mnesis_core.files.kinds.docx import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource
from tests.core.files.kinds.documents.office_files import OLD, bomb, changed, mangled, with_entities

PART = "word/document.xml"


def written() -> bytes:
    document = docx.Document()
    document.core_properties.title = "The plan"
    document.add_heading("All of it", 0)
    document.add_heading("Part one", 1)
    document.add_paragraph("Some words, VICTIM.")
    document.add_heading("Detail", 2)
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "name", "price"
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    picture.seek(0)
    document.add_picture(picture)
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def test_a_document_is_told_by_its_headings(source: MakeSource) -> None:
    made = source("renamed.zip", written())
    assert detect(made).name == "docx"
    assert detect(source("cut.docx", written()[:3000])).name == "docx"
    lines = list(explore(made).lines)
    assert lines[0] == "Word document: 6 paragraphs, 11 words, 1 table, 1 picture"
    assert "Title: The plan" in lines
    at = lines.index("3 headings:")
    assert lines[at:] == [
        "3 headings:",
        "All of it",
        "Part one",
        "  Detail",
        "It begins:",
        "Some words, VICTIM.",
        "Table: name, price",
    ]


def test_entities_are_not_followed(source: MakeSource) -> None:
    found = explore_any(source("a.docx", changed(written(), {PART: with_entities})))
    assert "laugh" not in found.summary
    assert "root:" not in found.summary


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no readable zip archive"),
        (b"plain text", "no readable zip archive"),
        (written()[:3000], "it may be cut off"),
        (OLD, "encrypted"),
        (changed(written(), {PART: lambda part: part[:300]}), "not readable as a document"),
        (mangled(written()), "not readable as a document"),
    ],
    ids=["empty", "text", "cut", "encrypted", "broken", "mangled"],
)
def test_what_cannot_be_read_says_why(source: MakeSource, data: bytes, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        explore(source("a.docx", data))


@pytest.mark.slow
def test_a_bomb_is_not_unpacked(source: MakeSource) -> None:
    with pytest.raises(Unreadable, match="larger than"):
        explore(source("a.docx", changed(written(), {PART: bomb})))

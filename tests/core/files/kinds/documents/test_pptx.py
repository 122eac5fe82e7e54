"""Slides: titles, texts, notes and pictures."""

from __future__ import annotations

import io

import pptx
import pytest
from PIL import Image

from mnesis_core.files.detection import detect
from mnesis_core.files.detection import explore as explore_any
from mnesis_core.files.kinds.pptx import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource
from tests.core.files.kinds.documents.office_files import OLD, changed, with_entities

PART = "ppt/slides/slide1.xml"


def written() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "First"
    slide.placeholders[1].text = "A point\nVICTIM"
    slide.notes_slide.notes_text_frame.text = "Say hello"
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    picture.seek(0)
    group = slide.shapes.add_group_shape()
    group.shapes.add_picture(picture, 0, 0)
    presentation.slides.add_slide(presentation.slide_layouts[6])
    target = io.BytesIO()
    presentation.save(target)
    return target.getvalue()


def test_slides_are_told_one_by_one(source: MakeSource) -> None:
    made = source("a.pptx", written())
    assert detect(made).name == "pptx"
    lines = list(explore(made).lines)
    assert lines[0] == "Slides: 2 slides"
    assert lines[-2:] == ["1. First: A point VICTIM [1 picture; notes: Say hello]", "2. (no title)"]


def test_entities_are_not_followed(source: MakeSource) -> None:
    found = explore_any(source("a.pptx", changed(written(), {PART: with_entities})))
    assert "laugh" not in found.summary
    assert "root:" not in found.summary


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain text", "no readable zip archive"),
        (OLD, "encrypted"),
        (changed(written(), {PART: lambda part: part[:300]}), "not readable as slides"),
        (changed(written(), {"ppt/presentation.xml": lambda _: b"<x/>"}), "not readable as slides"),
    ],
    ids=["text", "encrypted", "broken", "another"],
)
def test_what_cannot_be_read_says_why(source: MakeSource, data: bytes, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        explore(source("a.pptx", data))

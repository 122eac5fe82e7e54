"""Slides: their titles, texts, notes and pictures."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pptx
from pptx.enum.shapes import MSO_SHAPE_TYPE
from pptx.exc import PythonPptxError

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.kinds.archive import READ_ERRORS, check_parts, properties_of
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown, walk

MOST_SLIDES = 200
MOST_SHAPES = 2_000
TEXT_CHARACTERS = 120


def explore(source: Source) -> Findings:
    check_parts(source, "ppt/")
    try:
        presentation = pptx.Presentation(str(source.path))
        slides = list(presentation.slides)
        told = [_slide(number, slide) for number, slide in enumerate(slides[:MOST_SLIDES], start=1)]
    except (PythonPptxError, *READ_ERRORS) as error:
        raise Unreadable(
            fill(gettext_noop("not readable as slides: %(reason)s"), {"reason": shown(str(error))})
        ) from None
    lines = [f"Slides: {counted(len(slides), 'slide')}", *properties_of(presentation.core_properties), *told]
    covered = "all of it" if len(slides) <= MOST_SLIDES else f"{MOST_SLIDES} of {len(slides):,} slides"
    return Findings(lines=lines, covered=covered)


def _slide(number: int, slide: Any) -> str:
    every = walk(slide.shapes, lambda shape: shape.shapes if shape.shape_type == MSO_SHAPE_TYPE.GROUP else ())
    shapes = [shape for shape in islice(every, MOST_SHAPES) if shape.shape_type != MSO_SHAPE_TYPE.GROUP]
    title = slide.shapes.title
    name = shown(title.text_frame.text) if title is not None and title.has_text_frame else ""
    texts = [shape.text_frame.text for shape in shapes if shape.has_text_frame and shape.text_frame.text != name]
    text = shown(" / ".join(text for text in texts if text.strip()), characters=TEXT_CHARACTERS)
    extra = []
    if drawn := sum(shape.shape_type == MSO_SHAPE_TYPE.PICTURE for shape in shapes):
        extra.append(counted(drawn, "picture"))
    if tables := sum(bool(getattr(shape, "has_table", False)) for shape in shapes):
        extra.append(counted(tables, "table"))
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    if notes is not None and (said := shown(notes.text, characters=TEXT_CHARACTERS)):
        extra.append(f"notes: {said}")
    line = f"{number}. {name or '(no title)'}" + (f": {text}" if text else "")
    return f"{line} [{'; '.join(extra)}]" if extra else line

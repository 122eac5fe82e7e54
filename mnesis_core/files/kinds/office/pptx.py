"""Slides: their titles, texts, notes and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pptx
from pptx.enum.shapes import MSO_SHAPE_TYPE
from pptx.exc import PythonPptxError

from mnesis_core.files.kinds.office import READ_ERRORS, check_parts, pictures, properties_of
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

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
        raise Unreadable(f"not readable as slides: {shown(str(error))}") from None
    lines = [f"Slides: {counted(len(slides), 'slide')}", *properties_of(presentation.core_properties), *told]
    covered = "all of it" if len(slides) <= MOST_SLIDES else f"{MOST_SLIDES} of {len(slides):,} slides"
    return Findings(lines=lines, covered=covered)


def _slide(number: int, slide: Any) -> str:
    shapes = list(_shapes(slide.shapes))
    title = slide.shapes.title
    name = shown(title.text_frame.text) if title is not None and title.has_text_frame else ""
    texts = [shape.text_frame.text for shape in shapes if shape.has_text_frame and shape.text_frame.text != name]
    text = shown(" / ".join(text for text in texts if text.strip()), characters=TEXT_CHARACTERS)
    drawn = sum(shape.shape_type == MSO_SHAPE_TYPE.PICTURE for shape in shapes)
    tables = sum(bool(getattr(shape, "has_table", False)) for shape in shapes)
    extra = [*pictures(drawn), *([counted(tables, "table")] if tables else []), *_notes(slide)]
    return (
        f"{number}. {name or '(no title)'}"
        + (f": {text}" if text else "")
        + (f" [{'; '.join(extra)}]" if extra else "")
    )


def _shapes(shapes: Any) -> Iterator[Any]:
    waiting, count = list(reversed(list(shapes))), 0
    while waiting and count < MOST_SHAPES:
        shape = waiting.pop()
        count += 1
        if shape.shape_type == MSO_SHAPE_TYPE.GROUP:
            waiting.extend(reversed(list(shape.shapes)))
        else:
            yield shape


def _notes(slide: Any) -> list[str]:
    if not slide.has_notes_slide or slide.notes_slide.notes_text_frame is None:
        return []
    text = shown(slide.notes_slide.notes_text_frame.text, characters=TEXT_CHARACTERS)
    return [f"notes: {text}"] if text else []

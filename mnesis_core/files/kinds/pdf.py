"""PDF: its pages, title and outline, and the text of its first pages."""

from __future__ import annotations

import logging
from contextlib import suppress

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown, walk

MOST_PAGES_READ = 3
MOST_PAGE_BYTES = 1_048_576  # Drawing instructions of a page, from which its text is taken.
MOST_HEADINGS = 30
PAGE_CHARACTERS = 300
_DETAILS = {"title": "Title", "author": "Author", "subject": "Subject", "creation_date": "Made", "creator": "Made with"}


def explore(source: Source) -> Findings:
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with source.path.open("rb") as file:
        try:
            reader = PdfReader(file, strict=False)
            # Many files are encrypted with an empty password, only to restrict their use.
            if reader.is_encrypted and not reader.decrypt(""):
                raise Unreadable(gettext_noop("it is encrypted and can only be read with its password"))
            pages = len(reader.pages)
            lines = [f"PDF, {counted(pages, 'page')}"]
            metadata = reader.metadata
            for attribute, word in _DETAILS.items():
                with suppress(PyPdfError, ValueError):
                    if (value := str(getattr(metadata, attribute, None) or "")).strip():
                        lines.append(f"{word}: {shown(value, characters=160)}")
            headings: list[str] = []
            with suppress(PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                outline = walk(reader.outline, lambda item: item if isinstance(item, list) else ())
                headings = [str(item.title) for item in outline if not isinstance(item, list)]
            texts = [_text(reader, number) for number in range(min(pages, MOST_PAGES_READ))]
        except (PyPdfError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable(
                fill(gettext_noop("not readable as PDF: %(reason)s"), {"reason": shown(str(error))})
            ) from None
    if headings:
        lines.append(f"Outline: {listed(headings, most=MOST_HEADINGS)}")
    if not any(texts):
        lines.append("Its first pages have no text; they may be pictures of pages")
    lines += [f"Page {number} begins: {text}" for number, text in enumerate(texts, start=1) if text]
    covered = "all of it" if pages <= MOST_PAGES_READ else f"the text of the first {MOST_PAGES_READ} of {pages:,} pages"
    return Findings(lines=lines, covered=covered)


def _text(reader: PdfReader, number: int) -> str:
    with suppress(PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        page = reader.pages[number]
        content = page.get_contents()
        if content is not None and len(content.get_data()) <= MOST_PAGE_BYTES:
            return shown(page.extract_text(), characters=PAGE_CHARACTERS)
    return ""

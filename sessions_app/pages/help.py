"""The documentation of this version as pages: the files of ``docs/``, drawn when they are first asked for.

A translation of ``docs/tour.md`` is ``docs/de/tour.md``. It is shown at the same address, in place of the English file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from posixpath import join, normpath

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext, gettext_noop
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessions_app.pages.views import signed_in

DOCS = settings.BASE_DIR / "docs"
GUIDES = (
    ("howto/talk/", gettext_noop("Chats")),
    ("howto/agents/", gettext_noop("Agents and tools")),
    ("howto/inspect/", gettext_noop("What the model saw and remembers")),
    ("howto/run/", gettext_noop("Running a site")),
    ("howto/programs/", gettext_noop("Programs")),
    ("howto/extend/", gettext_noop("Developing Mnesis")),
)
"""The folders of how-to guides with their headings."""
REFERENCE = ("tour", "glossary", "operations", "endpoints", "errors", "architecture", "record", "format", "decisions")
"""The pages that are looked into, in the order in which people need them."""


@dataclass(frozen=True)
class Page:
    """A file of the documentation."""

    name: str
    """Such as ``howto/run/add-a-model``: the same in every language."""
    language: str
    path: Path
    title: str


@signed_in
def help_index(request: HttpRequest) -> HttpResponse:
    pages = sorted((_in_language(name) for name in {page.name for page in _pages().values()}), key=attrgetter("title"))
    sections = [
        (gettext(heading), [page for page in pages if page.name.startswith(folder)]) for folder, heading in GUIDES
    ]
    sections.insert(-1, (gettext("Concepts and reference"), [_in_language(name) for name in REFERENCE]))
    return render(request, "sessions_app/help/index.html", {"sections": sections})


@signed_in
def help_page(request: HttpRequest, name: str) -> HttpResponse:
    if not _translations(name):
        raise Http404
    page = _in_language(name)
    return render(request, "sessions_app/help/help.html", {"page": page, "html": _html(page)})


@cache
def _pages() -> dict[Path, Page]:
    """Return all pages by their file."""
    languages = {code for code, _ in settings.LANGUAGES}
    pages = {}
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        folder, _, rest = name.partition("/")
        language, name = (folder, rest) if folder in languages else (settings.LANGUAGE_CODE, name)
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        pages[path] = Page(name, language, path, title)
    return pages


def _translations(name: str) -> dict[str, Page]:
    """Return a page by language, the English original included."""
    return {page.language: page for page in _pages().values() if page.name == name}


def _in_language(name: str) -> Page:
    """Return a page in the reader's language, or else in English."""
    pages = _translations(name)
    return pages.get(get_language() or "") or pages[settings.LANGUAGE_CODE]


@cache
def _html(page: Page) -> SafeString:
    """Return a page without its title. The files are this project's own, so what HTML they have is trusted."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = _tokens(markdown, page)
    original = _headings(_tokens(markdown, _translations(page.name)[settings.LANGUAGE_CODE]))
    for (heading, words), (_, original_words) in zip(_headings(tokens), original, strict=True):
        heading.attrSet("id", _anchor(words))
        if _anchor(words) != _anchor(original_words):
            # Links from pages that are not translated name the English heading.
            words.children = [_place(_anchor(original_words)), *(words.children or ())]
    for token in tokens:
        for child in token.children or ():
            _lead_to_pages(child, page)
    html: str = markdown.renderer.render(tokens, markdown.options, {})
    tables = html.replace("<table>", '<div class="table-scroll"><table>').replace("</table>", "</table></div>")
    return SafeString(tables)


def _tokens(markdown: MarkdownIt, page: Page) -> list[Token]:
    return markdown.parse(page.path.read_text(encoding="utf-8").partition("\n")[2])


def _headings(tokens: list[Token]) -> list[tuple[Token, Token]]:
    """Return each heading's beginning with its words."""
    return [(heading, words) for heading, words in pairwise(tokens) if heading.type == "heading_open"]


def _anchor(words: Token) -> str:
    """Return the anchor that the files' links use, which is the one of GitHub."""
    return re.sub(r"[^\w\- ]", "", words.content.lower()).replace(" ", "-")


def _place(anchor: str) -> Token:
    return Token("html_inline", "", 0, content=format_html('<a id="{}"></a>', anchor))


def _lead_to_pages(token: Token, page: Page) -> None:
    """Let a link from one file to another lead from page to page; one to a file that is no page becomes plain words."""
    folder = page.path.parent.relative_to(settings.BASE_DIR).as_posix()
    if token.type == "image":
        path = normpath(join(folder, str(token.attrGet("src"))))
        token.attrSet("src", static(path.removeprefix("static/")))
    link = str(token.attrGet("href") or "")
    if token.type != "link_open" or link.startswith(("#", "http:", "https:")):
        return
    path, _, anchor = link.partition("#")
    target = _pages().get(settings.BASE_DIR / normpath(join(folder, path)))
    if target is None:
        token.attrs.pop("href")
    else:
        token.attrSet("href", reverse("help-page", args=[target.name]) + (f"#{anchor}" if anchor else ""))

"""The documentation of this version as pages: the files of ``docs/``, drawn when they are first asked for."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from posixpath import join, normpath

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessions_app.pages.views import signed_in

HOWTO, FOR_DEVELOPERS = "howto/", "howto/extend/"
REFERENCE = ("tour", "glossary", "operations", "endpoints", "errors", "architecture", "record", "format", "decisions")
"""The pages that are looked into, in the order in which people need them."""


@signed_in
def help_index(request: HttpRequest) -> HttpResponse:
    titles = _titles()
    howtos = sorted((title, name) for name, title in titles.items() if name.startswith(HOWTO))
    sections = (
        (gettext("How-to guides"), [pair for pair in howtos if not pair[1].startswith(FOR_DEVELOPERS)]),
        (gettext("Concepts and reference"), [(titles[name], name) for name in REFERENCE]),
        (gettext("Developing Mnesis"), [pair for pair in howtos if pair[1].startswith(FOR_DEVELOPERS)]),
    )
    return render(request, "sessions_app/help/index.html", {"sections": sections})


@signed_in
def help_page(request: HttpRequest, name: str) -> HttpResponse:
    title = _titles().get(name)
    if title is None:
        raise Http404
    return render(request, "sessions_app/help/help.html", {"title": title, "html": _html(name)})


@cache
def _titles() -> dict[str, str]:
    """Return the first heading of each page by its name, such as ``howto/run/add-a-model``."""
    folder = settings.BASE_DIR / "docs"
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    return {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}


@cache
def _html(name: str) -> SafeString:
    """Return a page without its title. The files are this project's own, so what HTML they have is trusted."""
    markdown = MarkdownIt("commonmark").enable("table")
    _, _, text = (settings.BASE_DIR / "docs" / f"{name}.md").read_text(encoding="utf-8").partition("\n")
    tokens = markdown.parse(text)
    for heading, words in pairwise(tokens):
        if heading.type == "heading_open":
            # The anchor that the files' links use, which is the one of GitHub.
            heading.attrSet("id", re.sub(r"[^\w\- ]", "", words.content.lower()).replace(" ", "-"))
        for token in heading.children or ():
            _lead_to_pages(token, name)
    html: str = markdown.renderer.render(tokens, markdown.options, {})
    tables = html.replace("<table>", '<div class="table-scroll"><table>').replace("</table>", "</table></div>")
    return SafeString(tables)


def _lead_to_pages(token: Token, name: str) -> None:
    """Let a link from one file to another lead from page to page; one to a file that is no page becomes plain words."""
    if token.type == "image":
        path = normpath(join("docs", name, "..", str(token.attrGet("src"))))
        token.attrSet("src", static(path.removeprefix("static/")))
    link = str(token.attrGet("href") or "")
    if token.type != "link_open" or link.startswith(("#", "http:", "https:")):
        return
    path, _, anchor = link.partition("#")
    target = normpath(join(name, "..", path)).removesuffix(".md")
    if target in _titles():
        token.attrSet("href", reverse("help-page", args=[target]) + (f"#{anchor}" if anchor else ""))
    else:
        token.attrs.pop("href")

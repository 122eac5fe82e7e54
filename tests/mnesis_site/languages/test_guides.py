"""Translated guides are up to date, and have everything that the English ones have."""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import pairwise

import pytest
from django.conf import settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessions_app.pages.help import DOCS, Page, _pages, _translations
from tests.mnesis_site.languages.test_catalogues import catalogue_of, translations_of

TRANSLATED = [page for page in _pages().values() if page.language != "en"]
SOURCE = re.compile(r"\n<!-- source: (\w+) -->\n\Z")
"""The last line of a translation: the beginning of the digest of the English file that was translated."""

each_guide = pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: f"{page.language}/{page.name}")


def text_of(page: Page) -> str:
    return page.path.read_text(encoding="utf-8")


def original(page: Page) -> Page:
    return _pages()[DOCS / f"{page.name}.md"]


def tokens_of(page: Page) -> list[Token]:
    """The tokens of a page, those within paragraphs and headings included."""
    tokens = MarkdownIt("commonmark").enable("table").parse(SOURCE.sub("\n", text_of(page)))
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def linked_page(token: Token, page: Page) -> tuple[str, bool]:
    """The name of the page that a link leads to, or its address if it leads elsewhere, and whether it names a place."""
    address, _, anchor = str(token.attrGet("href")).partition("#")
    path = (page.path.parent / address).resolve() if address else page.path
    target = _pages().get(path)
    if target and page.language in _translations(target.name):
        assert target.language == page.language, f"{address} is translated"
    return (target.name if target else path.name, bool(anchor))


def test_all_guides_but_those_for_developers_are_translated() -> None:
    guides = {page.name for page in _pages().values() if re.match("tour|howto/(?!extend/)", page.name)}
    assert len(guides) > 25
    for language, _ in settings.LANGUAGES:
        assert not [name for name in guides if language not in _translations(name)]


@each_guide
def test_a_translation_is_of_the_guide_as_it_is(page: Page) -> None:
    source = SOURCE.search(text_of(page))
    digest = sha256(original(page).path.read_bytes()).hexdigest()[:12]
    assert source, f"The last line of {page.path} must be <!-- source: {digest} -->"
    assert source[1] == digest, f"docs/{page.name}.md has changed: translate the change, then write {digest} below it"


@each_guide
def test_a_translation_has_the_same_parts(page: Page) -> None:
    ours, theirs = tokens_of(page), tokens_of(original(page))
    assert [token.tag for token in ours if token.block and token.tag] == [t.tag for t in theirs if t.block and t.tag]
    for kind in ("fence", "code_inline"):
        assert sorted(token.content for token in ours if token.type == kind) == sorted(
            token.content for token in theirs if token.type == kind
        )


@each_guide
def test_a_translation_leads_to_the_same_places(page: Page) -> None:
    def links(of: Page) -> list[tuple[str, bool]]:
        return sorted(linked_page(token, of) for token in tokens_of(of) if token.type == "link_open")

    assert links(page) == links(original(page))


@each_guide
def test_a_translation_names_the_labels_of_its_pages(page: Page) -> None:
    labels = [translations_of(catalogue_of(page.language, domain, "mo")) for domain in ("django", "djangojs")]
    text = re.sub(r"\s+", " ", text_of(page))
    for opening, words in pairwise(tokens_of(original(page))):
        named = [name for catalogue in labels for name in catalogue.get(words.content, [])]
        if opening.type == "em_open" and named:
            assert any(name.replace("\N{SOFT HYPHEN}", "") in text for name in named), f"*{words.content}* is {named}"

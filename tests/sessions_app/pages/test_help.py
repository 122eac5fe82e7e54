"""The documentation as pages: every file is one, and every link leads to a page that has the place it names."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.test import Client

from sessions_app.pages.help import REFERENCE, _pages
from tests.support.people.pages import Ask

pytestmark = pytest.mark.django_db
OWN = re.compile(r'href="(/help/[^"]*)"')


def test_the_index_names_every_how_to(ask: Ask) -> None:
    page = ask("/help/")
    folder = Path(settings.BASE_DIR) / "docs"
    howtos = {path.relative_to(folder).with_suffix("") for path in (folder / "howto").rglob("*.md")}
    assert len(howtos) > 20
    for name in howtos:
        assert f'href="/help/{name.as_posix()}/"' in page
    for name in REFERENCE:
        assert f'href="/help/{name}/"' in page


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_is_drawn_and_its_links_lead_somewhere(browser: Client, ask: Ask, language: str) -> None:
    browser.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    pages = {address: ask(address) for address in {f"/help/{page.name}/" for page in _pages().values()}}
    assert len(set(pages.values())) > 30
    for address, page in pages.items():
        text = page[page.index('class="prose"') :]
        for link in map(unescape, OWN.findall(text)):
            path, _, anchor = unquote(link).partition("#")
            assert path in pages, f"{address}: {link}"
            assert not anchor or f'id="{anchor}"' in pages[path], f"{address}: {link}"


def test_a_page_is_in_the_readers_language_if_it_is_translated(browser: Client, ask: Ask) -> None:
    browser.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    translated, original = ask("/help/howto/talk/search/"), ask("/help/glossary/")
    assert '<h1 lang="de">' in translated
    assert "auf Englisch" not in translated
    assert '<h1 lang="en">' in original
    assert "Diese Seite gibt es nur auf Englisch." in original


def test_the_index_says_what_is_not_translated(browser: Client, ask: Ask) -> None:
    assert "in English" not in ask("/help/")
    browser.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    page = ask("/help/")
    assert re.search(r'href="/help/howto/talk/search/" lang="de">[^<]+</a>\s*</li>', page)
    assert re.search(r'href="/help/glossary/" lang="en">[^<]+</a>\s*<span[^>]*>auf Englisch', page)


def test_the_pictures_of_a_page_are_static_files(ask: Ask) -> None:
    pictures = re.findall(r'<img src="/static/\w+/(img/tour/[^"]+)"', ask("/help/tour/"))
    assert len(pictures) > 5
    assert not [picture for picture in pictures if finders.find(picture) is None]


@pytest.mark.parametrize(
    "name", ["none", "../README", "howto", "%2e%2e/README", "howto/run/add-a-model.md", "\0", "x" * 5_000]
)
def test_what_is_no_page_is_not_found(browser: Client, name: str) -> None:
    assert browser.get(f"/help/{name}/").status_code == 404


def test_only_people_who_are_signed_in_read_it(client: Client) -> None:
    assert client.get("/help/").status_code == client.get("/help/glossary/").status_code == 302

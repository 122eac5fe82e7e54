"""Every text of a page and a script has its translation, in the catalogue that is committed."""

from __future__ import annotations

import re
import shutil
from gettext import GNUTranslations
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command

CATALOGUES = [(code, domain) for code, _ in settings.LANGUAGES if code != "en" for domain in ("django", "djangojs")]
NO_TEXTS = {"tests", "data", "docs", "benchmarks", "clients"}
PLACEHOLDER = re.compile(r"%\(\w+\)s|%%|</?\w+[^>]*>|{{.*?}}")
"""A value, a tag or a percent sign: what a translation has in common with its text."""


def catalogue_of(code: str, domain: str, suffix: str) -> Path:
    return settings.BASE_DIR / "locale" / code / "LC_MESSAGES" / f"{domain}.{suffix}"


def translations_of(path: Path) -> dict[str, list[str]]:
    """The texts of a compiled catalogue, each with its translations: one, or one for each plural."""
    with path.open("rb") as file:
        entries = GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    found: dict[str, list[str]] = {}
    for key, translation in entries.items():
        found.setdefault(key[0] if isinstance(key, tuple) else key, []).append(translation)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("xgettext"), reason="needs GNU gettext (xgettext)")
@pytest.mark.parametrize(("code", "domain"), CATALOGUES)
def test_the_catalogue_has_every_text_and_no_other(
    code: str, domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A copy, since "makemessages" writes a file beside each template while it reads it, and other tests read the folder.
    for place in settings.BASE_DIR.iterdir():
        if place.is_dir() and not place.name.startswith(".") and place.name not in NO_TEXTS:
            shutil.copytree(place, tmp_path / place.name, ignore=shutil.ignore_patterns("__pycache__", "vendor", "img"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "LOCALE_PATHS", [tmp_path / "locale"])
    call_command("makemessages", locale=[code], domain=domain, verbosity=0)
    made = (tmp_path / "locale" / code / "LC_MESSAGES" / f"{domain}.po").read_text()
    kept = catalogue_of(code, domain, "po").read_text()
    assert without_date(made) == without_date(kept), "run 'make messages', and translate what is new"


def without_date(text: str) -> str:
    return re.sub(r'"POT-Creation-Date: .*\n', "", text)


@pytest.mark.parametrize(("code", "domain"), CATALOGUES)
def test_every_text_is_translated(code: str, domain: str) -> None:
    entries = re.split(r"\n\n+", catalogue_of(code, domain, "po").read_text())[1:]
    compiled = translations_of(catalogue_of(code, domain, "mo"))
    assert [entry for entry in entries if re.search(r'^msgstr(\[\d\])? ""$(?!\n")|^#, .*fuzzy', entry, re.M)] == []
    texts = {eval_text(entry) for entry in entries}
    assert texts == {text.partition("\x04")[2] or text for text in compiled if text}, "run 'make messages'"


def eval_text(entry: str) -> str:
    """The text of an entry, whose literals may be spread over lines."""
    found = re.search(r'^msgid ((?:".*"\n)+)', entry, re.M)
    assert found, entry
    literals = re.findall(r'"(.*)"', found[1])
    return "".join(literals).replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")


@pytest.mark.parametrize(("code", "domain"), CATALOGUES)
def test_translations_have_the_values_and_tags_of_their_texts(code: str, domain: str) -> None:
    translations = translations_of(catalogue_of(code, domain, "mo")).items()
    wrong = {
        text: translation
        for text, several in translations
        for translation in several
        # The plural may have more values than the singular, which may say "one".
        if text
        and not (
            values_of(text) == values_of(translation) or (len(several) > 1 and values_of(text) < values_of(translation))
        )
    }
    assert wrong == {}


def values_of(text: str) -> set[str]:
    return set(PLACEHOLDER.findall(text))

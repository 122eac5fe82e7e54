"""Pages in the reader's language: which one that is, what is in it, and what stays English for everyone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.forms import BaseForm
from django.http import QueryDict
from django.template import engines
from django.test import Client
from django.urls import get_resolver, reverse
from django.utils import translation
from django.utils.formats import get_format
from django.utils.safestring import SafeString

from agents_app.turns import lifecycle
from mnesis_core.errors import MnesisError
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_site.health import site_health
from mnesis_site.management.commands.makemessages import core_texts
from sessions_app.database.tables import fetch
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.models import Turn
from sessions_app.pages import formats, markdown
from sessions_app.pages.branches import _number
from sessions_app.pages.formats import NOUNS
from tests.support.documents.unmarked_texts import EXPORTS, PAGE_MODULES, ROOT, unmarked
from tests.support.people.cast import ada, inspector, make_user
from tests.support.people.pages import browser, reader
from tests.support.people.story import alice, history, quiet_runner, say, script, spoken, tool_call
from tests.support.record.inspected import add_turn
from tests.support.record.talks import new_session

__all__ = ["ada", "alice", "browser", "inspector", "quiet_runner", "reader", "script"]

APPS = ("agents_app", "audit_app", "compaction_app", "files_app", "mnesis_site", "sessions_app")
GERMAN = {"HTTP_ACCEPT_LANGUAGE": "de-DE,de;q=0.9,en;q=0.5"}
COUNTED = re.compile(r"""\|counted:["']([^"']+)["']|format_counted\((?:[^()]|\([^()]*\))*?, ["']([^"']+)["']\)""")


def language_of(answer: Any) -> str:
    found = re.search(r'<html lang="([^"]*)"', answer.content.decode())
    assert found
    return found[1]


# What can be translated at all.


def test_no_text_of_a_template_is_unmarked() -> None:
    found = unmarked(ROOT / "templates")
    assert [item for item in found if not item.path.removeprefix("templates/").startswith(EXPORTS)] == []


def test_no_text_of_a_script_is_unmarked() -> None:
    assert unmarked(ROOT / "static" / "js") == []


def test_no_text_of_a_module_that_makes_pages_is_unmarked() -> None:
    assert unmarked(*(ROOT / name for name in PAGE_MODULES)) == []


def test_what_is_counted_has_its_noun() -> None:
    files = [*(ROOT / "templates").rglob("*.html"), *(path for name in APPS for path in (ROOT / name).rglob("*.py"))]
    used = {one or other for path in files for one, other in COUNTED.findall(path.read_text())}
    assert {"message", "token", "named turn", "call", "session"} <= used
    assert used - NOUNS.keys() == set()
    with pytest.raises(KeyError):
        formats.format_counted(2, "ox")


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_in_english_is_the_same_by_the_catalogue_and_by_the_short_way(name: str) -> None:
    for number in (0, 1, 2, 1_204):
        shown = NOUNS[name] % {"count": number, "shown": f"{number:,}"}
        assert formats.format_counted(number, name) == shown == f"{number:,} {name}{'' if number == 1 else 's'}"


def test_every_date_on_a_page_has_its_german_form() -> None:
    """A format with a month's name is written in another order there, with points."""
    files = [*(ROOT / "templates").rglob("*.html"), *(path for name in APPS for path in (ROOT / name).rglob("*.py"))]
    wanted = re.compile(r"""(?:\|date:|date_format\(\w+, |Step\.\w+: )["']([^"']*[MF][^"']*)["']""")
    used = {found for path in files for found in wanted.findall(path.read_text())}
    assert {"j M Y, H:i", "j M Y", "j M", "j M, H:00"} <= used
    assert [form for form in sorted(used) if get_format(form, "de") == form] == []


def test_what_the_core_says_to_people_can_be_translated() -> None:
    texts = core_texts()
    assert {"The owner's username", "truncation", "You cannot do this to your own account.", "may destroy"} <= texts
    assert {"Tokens of a prompt", "The request is not valid."} <= texts


# Which language a page is in.


def test_a_german_browser_gets_german_pages(browser: Client) -> None:
    answer = browser.get("/", **GERMAN)
    assert language_of(answer) == "de"
    assert answer.headers["Content-Language"] == "de"
    assert "Accept-Language" in answer.headers["Vary"]
    assert language_of(browser.get("/")) == "en"


def test_tools_are_described_to_people_in_their_language_and_to_models_in_english(browser: Client) -> None:
    english, german = "Compute an arithmetic expression", "Berechnet einen Ausdruck mit"
    page = browser.get("/tools/?q=calculator", **GERMAN).content.decode()
    assert page.index(german) < page.index("Beschreibung, die Modelle lesen") < page.index(english)
    assert browser.get("/tools/?q=berechnet", **GERMAN).content.decode().count("tool-entry") == 1
    assert german not in browser.get("/tools/").content.decode()
    listed = {tool["name"]: tool for tool in browser.get("/api/tools", **GERMAN).json()["items"]}
    assert listed["calculator"]["description"].startswith(english)
    assert "summary" not in listed["calculator"]


@pytest.mark.parametrize("wanted", ["xx", "fr, it;q=0.5", "*", "\x00", "d" * 5_000])
def test_an_unknown_language_falls_back_to_english(browser: Client, wanted: str) -> None:
    assert language_of(browser.get("/", HTTP_ACCEPT_LANGUAGE=wanted)) == "en"
    browser.cookies[settings.LANGUAGE_COOKIE_NAME] = "xx"
    assert language_of(browser.get("/")) == "en"


def test_a_chosen_language_wins_over_the_browsers(browser: Client) -> None:
    answer = browser.post("/language/", {"language": "de"}, HTTP_REFERER="http://testserver/sessions/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "http://testserver/sessions/")
    cookie = answer.cookies[settings.LANGUAGE_COOKIE_NAME]
    assert (cookie.value, cookie["samesite"], bool(cookie["httponly"])) == ("de", "Lax", True)
    assert language_of(browser.get("/", HTTP_ACCEPT_LANGUAGE="en")) == "de"
    browser.post("/language/", {"language": "en"})
    assert language_of(browser.get("/", **GERMAN)) == "en"
    browser.post("/language/", {"language": "xx"})
    assert language_of(browser.get("/", **GERMAN)) == "en"


def test_one_who_is_not_signed_in_has_a_language_too(client: Client, db: None) -> None:
    assert language_of(client.get("/sign-in/", **GERMAN)) == "de"
    assert language_of(client.get("/no-such-page/", **GERMAN)) == "de"


# What stays English.


@pytest.mark.parametrize("path", ["/api/v1/sessions", "/api/v1/sessions/none", "/api/v1/nothing", "/v1/models", "/rpc"])
def test_programs_are_answered_in_english(client: Client, reader: User, path: str) -> None:
    key = create_key(owner_id=reader.pk)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    answers = []
    for headers in (GERMAN, {}):
        authorization = {"HTTP_AUTHORIZATION": f"Bearer {key}"}
        answer = client.get(path, **headers, **authorization)
        answers.append((answer.status_code, re.sub(rb"req_\w+", b"", answer.content)))
        assert "accept-language" not in answer.headers.get("Vary", "").lower()
        assert "Content-Language" not in answer.headers
    assert answers[0] == answers[1]


async def told_in(code: str, owner: User, script: Any) -> dict[str, Any]:
    """What is recorded of a session, and what its model is sent, while this language is active."""
    model: ScriptedModel = script(
        Step(tool_calls=(tool_call("calculator", expression="1200.5 * 2"),)), "It is 2,401.", "Yes."
    )
    with translation.override(code):
        session = await db(lifecycle.create_session, owner=owner)
        await say(session, "What is 1,200.5 twice?")
        await say(session, "Sure?")
        rows = await db(fetch, "SELECT type FROM events WHERE session_id = %s ORDER BY seq", [session.id])
        [(title,)] = await db(fetch, "SELECT title FROM sessions WHERE id = %s", [session.id])
        said = [spoken(message) for message in await history(session)]
    ids = re.compile(r"\b[a-z]+_[0-9A-Z]{26}\b|\d{4}-\d\d-\d\d[T ][\d:.]*\w*")
    sent = [ids.sub("…", str(request.payload)) for request in model.requests]
    return {"title": title, "events": [type for (type,) in rows], "said": said, "sent": sent}


async def test_a_german_readers_session_is_recorded_as_an_english_ones(alice: User, script: Any) -> None:
    english = await told_in("en", alice, script)
    assert len(english["sent"]) == 3
    assert await told_in("de", alice, script) == english


@pytest.mark.parametrize("kind", MnesisError.__subclasses__())
def test_an_error_is_raised_in_english(kind: type[MnesisError]) -> None:
    with translation.override("de"):
        assert kind().message == " ".join((kind.__doc__ or "").split())


# The texts of scripts.


def test_the_texts_of_scripts_are_kept_for_a_year(client: Client) -> None:
    answer = client.get(reverse("script-texts", args=["de", settings.LOCALE_DIGEST]))
    assert answer.status_code == 200
    assert "javascript" in answer.headers["Content-Type"]
    assert {"max-age=31536000", "public", "immutable"} <= set(answer.headers["Cache-Control"].split(", "))
    assert b"gettext" in answer.content
    assert translation.get_language() == "en"


@pytest.mark.parametrize("code", ["xx", "fr", "de-at"])
def test_an_unknown_language_has_no_texts(client: Client, code: str) -> None:
    assert client.get(reverse("script-texts", args=[code, settings.LOCALE_DIGEST])).status_code == 404


def test_only_pages_in_another_language_ask_for_them(browser: Client) -> None:
    assert "texts.js" not in browser.get("/").content.decode()
    assert reverse("script-texts", args=["de", settings.LOCALE_DIGEST]) in browser.get("/", **GERMAN).content.decode()


# Numbers, sums and times in German.

WRITTEN = [
    (formats.format_count, 842, "842", "842"),
    (formats.format_count, 12_400, "12.4k", "12,4k"),
    (formats.format_count, 1_200_000, "1.2M", "1,2M"),
    (formats.format_count, None, "?", "?"),
    (formats.format_number, 1_234_567, "1,234,567", "1.234.567"),
    (formats.format_number, 999, "999", "999"),
    (formats.format_number, None, "", ""),
    (formats.format_size, 842, "842 B", "842 B"),
    (formats.format_size, 12_400, "12.4 KB", "12,4 KB"),
    (formats.format_money, 1_234_500_000, "$1,234.50", "1.234,50\N{NO-BREAK SPACE}$"),
    (formats.format_money, 12, "$0.000012", "0,000012\N{NO-BREAK SPACE}$"),
    (formats.format_money, 0, "$0", "0\N{NO-BREAK SPACE}$"),
    (formats.format_money, None, "", ""),
    (formats.format_duration, 0.34, "340 ms", "340 ms"),
    (formats.format_duration, 2.4, "2.4 s", "2,4 s"),
    (formats.format_duration, 185, "3 min 05 s", "3 min 05 s"),
    (formats.format_day, date(2026, 3, 5), "5 Mar 2026", "5. März 2026"),
    (formats.format_moment, datetime(2026, 1, 5, 14, 5, tzinfo=UTC), "5 Jan 2026, 14:05", "5. Jan. 2026, 14:05"),
    (formats.localised, "+1,203.5", "+1,203.5", "+1.203,5"),
]


@pytest.mark.parametrize(("write", "value", "english", "german"), WRITTEN)
def test_a_number_is_written_as_the_language_does(write: Any, value: Any, english: str, german: str) -> None:
    assert write(value) == english
    with translation.override("de"):
        assert write(value) == german
    assert write(value) == english


def test_a_month_has_its_german_name() -> None:
    with translation.override("de"):
        assert formats.format_days_ago(date(2026, 3, 5), date(2026, 6, 1)) == "März"


def test_a_template_writes_dates_as_german_does() -> None:
    template = engines["django"].from_string("{{ at|date:'j M Y, H:i' }}")
    with translation.override("de"):
        assert template.render({"at": datetime(2026, 1, 5, 14, 5, tzinfo=UTC)}) == "5. Jan. 2026, 14:05"


def test_a_typed_number_may_be_grouped_as_the_page_writes_it() -> None:
    with translation.override("de"):
        assert _number(QueryDict("typed=1.204"), "typed") == 1_204
    assert _number(QueryDict("typed=1,204"), "typed") == 1_204


def test_every_language_says_how_it_writes_sums() -> None:
    for code, _ in settings.LANGUAGES:
        assert code == "en" or "%s" in get_format("MONEY_FORMAT", code)


# What is kept for a while is kept for each language.


def test_a_rendered_text_has_its_captions_in_the_readers_language() -> None:
    text = "```mermaid\ngraph TD; A-->B\n```"
    english = markdown.render_markdown(text)
    with translation.override("de"):
        german = markdown.render_markdown(text)
    assert "a diagram, as its text" in english
    assert isinstance(german, SafeString)
    assert ("a diagram, as its text" in german) == (translated("a diagram, as its text") == "a diagram, as its text")
    assert markdown.render_markdown(text) == english


def test_the_health_of_the_site_is_kept_for_each_language(db: None) -> None:
    cache.clear()
    english = [*site_health().sections]
    with translation.override("de"):
        german = [*site_health().sections]
    assert german == [translated(title) for title in english]
    assert [*site_health().sections] == english


# The administration.


def test_tables_and_columns_have_german_names(inspector: Client, ada: User) -> None:
    session = new_session(ada)
    add_turn(session, "Tide?")
    turn = Turn.objects.get(session_id=session).pk
    index = inspector.get(reverse("admin:index"), **GERMAN).content.decode()
    for name in (
        "Die Aufzeichnung",
        "Agenten und Werkzeuge",
        "Runden",
        "Modellaufrufe",
        "Versuche von Zusammenfassungen",
    ):
        assert name in index, name
    rows = inspector.get(reverse("admin:sessions_app_turn_changelist"), **GERMAN).content.decode()
    for name in ("Tokens der Eingabe", "Erstellt (UTC)", "Eine ID oder Wörter aus dem Titel einer Sitzung"):
        assert name in rows, name
    row = inspector.get(reverse("admin:sessions_app_turn_change", args=[turn]), **GERMAN).content.decode()
    for name in ("Runde 1 · ", "Herkunft des Verbrauchs", "Ihre Modellaufrufe"):
        assert name in row, name
    for page in (index, rows, row):
        assert not re.search(r">\s*(?:Turns|Model calls|Tokens input|Usage source|Its messages)\s*<", page)
    assert "Tokens input" in inspector.get(reverse("admin:sessions_app_turn_changelist")).content.decode()


def test_names_of_tables_are_english_where_django_keeps_them() -> None:
    with translation.override("de"):
        assert (Turn._meta.verbose_name, Turn._meta.verbose_name_raw) == ("Runde", "turn")
        name, _, _, options = Turn._meta.get_field("tokens_input").deconstruct()
        assert (name, options.get("verbose_name")) == ("tokens_input", None)


def translated(text: str) -> str:
    with translation.override("de"):
        return translation.gettext(text)


def test_an_act_of_german_staff_is_noted_in_english(db: None) -> None:
    staff, other = User.objects.create_superuser("grace"), make_user("bob")
    client = Client()
    client.force_login(staff)
    answer = client.post(f"/people/{other.pk}/close/", **GERMAN)
    assert (answer.status_code, language_of(answer)) == (200, "de")
    [(what,)] = fetch("SELECT change_message FROM django_admin_log ORDER BY id DESC LIMIT 1")
    assert what == "Closed, with 0 API keys."


def test_every_field_that_a_form_shows_has_a_label_of_its_own() -> None:
    get_resolver().url_patterns  # noqa: B018 - imports every form

    def below(form: type[Any]) -> Iterator[type[Any]]:
        for other in form.__subclasses__():
            yield from (other, *below(other))

    ours = [form for form in set(below(BaseForm)) if not form.__module__.startswith("django.")]
    fields = [(form.__name__, name, field) for form in ours for name, field in form.base_fields.items()]
    assert len(fields) > 50
    assert [
        f"{form}.{name}" for form, name, field in fields if field.label is None and not field.widget.is_hidden
    ] == []

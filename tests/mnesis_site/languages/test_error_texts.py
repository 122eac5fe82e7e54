"""Errors that name values, in the language of the page that shows them. Programs always read them in English."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import translation

from agents_app.turns import lifecycle
from audit_app.tasks import run_import
from mnesis_core.errors import InvalidRequest, MnesisError, ModelRefusedRequest
from mnesis_core.turns.mcp_servers import ServerAddress
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from sessions_app.pages.formats import error_text
from sessions_app.templatetags.sessions import kept_error
from tests.agents_app.tools.mcp.test_mcp_admin import filled
from tests.sessions_app.llm.test_models_page import ENTERED
from tests.support.people.cast import ada, inspector
from tests.support.people.pages import browser, reader
from tests.support.people.story import alice, quiet_runner, say, script

pytestmark = pytest.mark.django_db

__all__ = ["ada", "alice", "browser", "inspector", "quiet_runner", "reader", "script"]

GERMAN = {"Accept-Language": "de"}
OF_A_PAGE = {"Mnesis-Language": "de"}
HOSTILE = "%(name)s {name} {0.__class__} % %% %s \x00 \u202e <b>"
PILOT = {"name": "Pilot", "tools_from": "site", "audience": "named"}


def german(client: Client, path: str, sent: dict[str, Any] | None = None) -> str:
    answer = client.get(path, headers=GERMAN) if sent is None else client.post(path, sent, headers=GERMAN)
    return unescape(answer.content.decode())


def refused(client: Client, path: str, sent: dict[str, Any] | None = None, **headers: str) -> dict[str, Any]:
    """The error that a program is answered whose client asks for German."""
    headers = GERMAN | headers
    if sent is None:
        answer = client.get(path, headers=headers)
    else:
        answer = client.post(path, sent, content_type="application/json", headers=headers)
    assert 400 <= answer.status_code < 500, answer.content
    found: dict[str, Any] = answer.json()["error"]
    return found


# What a page shows.


def test_a_search_says_in_german_how_long_it_may_be(browser: Client) -> None:
    query = f"?q={'tide' * 300}&mode=text"
    assert "Eine Suche hat höchstens 1.000 Zeichen, nicht 1.200." in german(browser, f"/search/{query}")
    error = refused(browser, f"/api/search{query}")
    assert error["message"] == "A search has at most 1,000 characters, not 1,200."
    assert error["details"] == {"field": "q"}


def test_a_term_of_observe_is_named_in_german(inspector: Client) -> None:
    assert "„colour:%(term)s“ ist kein bekanntes Feld. Felder: " in german(inspector, "/observe/?q=colour:%25(term)s")


def test_a_day_of_the_usage_is_refused_in_german(browser: Client) -> None:
    assert "„from“ muss ein Tag sein, wie 2026-01-31." in german(browser, "/usage/?from=2026-13-01")


def test_a_form_of_an_assistant_names_the_account_in_german(browser: Client) -> None:
    page = german(browser, "/assistants/add/", PILOT | {"users": "mallory"})
    assert "Ein Konto 'mallory' gibt es hier nicht." in page
    sent = {"name": "Pilot", "people": ["mallory"]}
    assert refused(browser, "/api/assistants", sent)["message"] == "There is no account 'mallory' here."


def test_a_failed_import_names_its_file_in_german(browser: Client, settings: Any, tmp_path: Any) -> None:
    settings.MNESIS = settings.MNESIS | {"UPLOAD_FOLDER": tmp_path}
    file = SimpleUploadedFile("50 %(name)s.txt", b"no transcript")
    sent = browser.post("/api/sessions/import", {"file": [file]}).json()
    run_import(sent["id"])
    page = german(browser, f"/import/{sent['id']}/")
    assert "„50 %(name)s.txt“ ist kein Transkript in einem bekannten Format." in page
    told = browser.get(f"/api/sessions/import/{sent['id']}", headers=GERMAN).json()["error"]
    assert told["message"].startswith("'50 %(name)s.txt' is no transcript of a known format.")
    assert set(told) == {"code", "message", "details", "request"}


def test_a_form_of_a_tool_server_says_in_german_what_cannot_be_read(inspector: Client) -> None:
    sent = filled(ServerAddress(name="files")) | {"program": "npx 'unclosed"}
    assert "Das Programm lässt sich nicht lesen: No closing quotation" in german(inspector, "/tools/servers/add/", sent)


def test_an_error_that_the_record_keeps_is_in_german_if_it_names_no_values() -> None:
    with translation.override("de"):
        assert kept_error("Not found.") == "Nicht gefunden."
        assert kept_error("Not found: \u202e %(name)s 100%%") == "Not found: ⟨U+202E⟩ %(name)s 100%%"
        assert kept_error(None) == kept_error("") == ""


# What the record keeps, and what else was put together in English.

KEPT = [
    (
        "No model server answers at tide.example. Check the model's address, and that its server runs.",
        "Unter tide.example antwortet kein Modellserver. Prüfen Sie die Adresse des Modells, und ob sein Server läuft.",
    ),
    (
        'The provider refused the request. The provider says: "no. such tide"',
        "Der Anbieter hat die Anfrage abgelehnt. Der Anbieter sagt: „no. such tide“",
    ),
    (
        "The model said nothing for 2.5 seconds. Try again, or choose another model.",
        "Das Modell hat 2,5 Sekunden lang nichts gesagt. Versuchen Sie es noch einmal, oder wählen Sie ein anderes Modell.",
    ),
    (
        "The input has more than 10,000 items.",
        "Die Eingabe hat mehr als 10.000 Einträge.",
    ),
    (
        "3 x unreadable lines are kept as text: it is not JSON",
        "3 × unlesbare Zeilen bleiben als Text erhalten: es ist kein JSON",
    ),
    (
        "not valid Python in line 12: invalid syntax",
        "kein gültiges Python in Zeile 12: invalid syntax",
    ),
    (
        "effort cannot be asked of demo: the nearest that the model takes is high.",
        "effort lässt sich von demo nicht verlangen: am nächsten kommt, was das Modell annimmt: high.",
    ),
    # Problems that a verification finds.
    ("directory_entries: entry 7 is not what was hashed", "directory_entries: Eintrag 7 ist nicht, was gehasht wurde"),
    ("turn_seq : 3 by the ledger, 4 in the rows", "turn_seq : 3 laut Journal, 4 in den Zeilen"),
    (
        "2 entries are not in the search index, the first of them part part_1 text;"
        " 'manage.py rebuild_search' makes the index again",
        "2 Einträge fehlen im Suchindex, der erste davon part part_1 text;"
        " „manage.py rebuild_search“ baut den Index neu auf",
    ),
    (
        "it cannot be followed to its end: values that make no sense (ValueError)",
        "das Journal ist nicht bis zum Ende lesbar: Werte, die keinen Sinn ergeben (ValueError)",
    ),
]


@pytest.mark.parametrize(("english", "shown"), KEPT)
def test_a_kept_error_is_in_german_with_its_values(english: str, shown: str) -> None:
    assert kept_error(english) == english
    with translation.override("de"):
        assert kept_error(english) == shown


def test_what_others_said_is_kept_behind_the_sentence_of_its_code() -> None:
    with translation.override("de"):
        assert kept_error("The config is missing") == "The config is missing"
        assert kept_error("the tide", "MODEL_ERROR") == "Der Modellaufruf ist fehlgeschlagen. the tide"
        assert kept_error("the tide", "OF_ANOTHER_VERSION") == "the tide"
        assert kept_error("", "MODEL_ERROR") == ""
        assert kept_error("a " * 5_000) == "a " * 5_000
    assert kept_error("the tide", "MODEL_ERROR") == "the tide"


def test_a_kept_value_is_no_text() -> None:
    hostile = HOSTILE.replace("\x00", "").replace("\u202e", "")
    with translation.override("de"):
        assert kept_error(f"No model server answers at {hostile}.") == f"Unter {hostile} antwortet kein Modellserver."


async def test_a_failed_turn_is_told_in_german(alice: User, script: Any) -> None:
    says = 'The provider refused the request. The provider says: "no tide"'
    script(ModelRefusedRequest(says))
    session = await db(lifecycle.create_session, owner=alice)
    turn = await say(session, "Tide?")
    assert turn.error_message == says
    client = Client()
    await db(client.force_login, alice)
    for path in (f"/sessions/{session.id}/", reverse("inspect-turn", args=[session.id, turn.id])):
        page = await db(german, client, path)
        assert "Der Anbieter hat die Anfrage abgelehnt. Der Anbieter sagt: „no tide“" in page, path
        assert says not in page, path


def test_an_import_tells_in_german_what_was_odd(browser: Client, settings: Any, tmp_path: Any) -> None:
    settings.MNESIS = settings.MNESIS | {"UPLOAD_FOLDER": tmp_path}
    lines = '{"messages": [{"role": "user", "content": "Tide?"}]}\n{broken\n'
    file = SimpleUploadedFile("tides.jsonl", lines.encode())
    sent = browser.post("/api/sessions/import", {"file": [file]}).json()
    run_import(sent["id"])
    page = german(browser, f"/import/{sent['id']}/")
    assert "unlesbare Datensätze bleiben als Text erhalten: es ist kein JSON" in page
    assert "are kept as text" not in page


# What forms say of parameters and defaults.


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ('{"temperature": 5}', "Parameters.temperature muss eine Zahl zwischen 0 und 2 sein."),
        ('{"seed": 1.5}', "Parameters.seed muss eine ganze Zahl zwischen -9.007.199.254.740.991 und"),
        ('{"colour": 1}', "Parameters.colour ist kein Parameter; bekannt sind hier: temperature, "),
        ('{"stop": ["", ""]}', "Parameters.stop darf aus höchstens 4 Texten von 1 bis 100 Zeichen bestehen."),
        ('{"temperature": NaN}', "Geben Sie ein JSON-Objekt ein: NaN ist kein JSON."),
        (
            '{"temperature": 0.5}',
            "Temperature lässt sich von diesem Modell nicht verlangen: das Modell nimmt es nicht an.",
        ),
    ],
)
def test_a_form_of_a_model_refuses_parameters_in_german(inspector: Client, parameters: str, shown: str) -> None:
    sent = ENTERED | {"litellm_model": "demo/chat", "parameters": parameters}
    assert shown in german(inspector, "/models/add/", sent)


@pytest.mark.slow
def test_the_check_of_a_model_is_told_in_german(inspector: Client) -> None:
    LanguageModel.objects.create(
        alias="big", litellm_model="openai/gpt-4o", context_window=8_000, max_output_tokens=1_000
    )
    inspector.post("/models/big/check/", headers=GERMAN)
    page = german(inspector, "/models/")
    assert "Das Modell 'big' hat keinen Schlüssel" in page.replace("„", "'").replace("“", "'")
    assert "has no key" not in page


@pytest.mark.parametrize(("path", "shown"), [("assistants", "Ein Assistent"), ("projects", "Ein Projekt")])
def test_defaults_are_refused_in_german(browser: Client, path: str, shown: str) -> None:
    sent = {"name": "Pilot", "config": {"budget": {}}}
    error = refused(browser, f"/api/{path}", sent, **OF_A_PAGE)
    assert error["message"].startswith(f"{shown} legt parameters, turn, ")


# What a script of a page is answered.


def test_a_script_of_a_german_page_is_answered_in_german(browser: Client) -> None:
    sent = {"title": "a" * 101, "name": "tide", "text": "x"}
    error = refused(browser, "/api/prompts", sent, **OF_A_PAGE)
    assert (error["code"], error["message"]) == ("INVALID_REQUEST", "Ein Titel darf höchstens 100 Zeichen haben.")
    assert error["details"] == {"field": "title"}
    assert refused(browser, "/api/sessions/none", **OF_A_PAGE)["message"].startswith("Diese Sitzung gibt es nicht")
    assert translation.get_language() == "en"


@pytest.mark.parametrize("language", ["", "xx", "fr", "de-AT", "d" * 5_000, "\u00e4"])
def test_another_language_than_a_pages_is_english(browser: Client, language: str) -> None:
    error = refused(browser, "/api/sessions/none", **{"Mnesis-Language": language})
    assert error["message"] == "There is no such session, or it is not yours."


# Values are never read as a text.


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_value_comes_through_as_it_is(language: str) -> None:
    error = InvalidRequest("There is no account %(name)s here.", {"name": HOSTILE}, field="name")
    with translation.override(language):
        shown = error_text(error)
    assert HOSTILE in shown
    assert shown == (f"Ein Konto {HOSTILE} gibt es hier nicht." if language == "de" else error.message)
    assert error.message == str(error) == f"There is no account {HOSTILE} here."
    assert error.as_dict()["details"] == {"field": "name"}


@pytest.mark.parametrize("text", ["100 %", "%(name)s", "%", "%s %d", "{0.__class__}"])
def test_a_text_without_values_stays_as_it_is(text: str) -> None:
    error = MnesisError(text, name="x")
    assert (error.message, error_text(error)) == (text, text)


def test_numbers_are_written_as_the_language_does() -> None:
    error = InvalidRequest("An import may have %(most)s bytes.", {"most": 1_000_000})
    assert error.message == "An import may have 1,000,000 bytes."
    with translation.override("de"):
        assert error_text(error) == "Ein Import darf höchstens 1.000.000 Bytes haben."

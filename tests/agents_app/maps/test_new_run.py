"""The form that starts a run: from a file, a table or lines, and what it says of what cannot be started."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from agents_app.queries import list_runs, load_run
from files_app.contents import content_size, reading
from files_app.intake import keep_file
from files_app.queries import load_file_reference
from mnesis_core.maps.values import OperatorKind, RunRecord
from sessions_app.models import Session
from tests.support.people.cast import make_user
from tests.support.people.pages import Ask, ask, browser, reader
from tests.support.record.talks import new_session

__all__ = ["ask", "browser", "reader"]

pytestmark = pytest.mark.django_db
ADDRESS = "/runs/add/"
TEMPLATE = "Is it kind? {{ item.text }}"
LINES = b'{"text":"Lovely."}\n{"text":"Cold."}\n'


def send(browser: Client, new: bytes | None = None, *, name: str = "reviews.jsonl", **given: Any) -> HttpResponse:
    fields = {"template": TEMPLATE, "kind": "llm"} | given
    if new is not None:
        fields["new_file"] = SimpleUploadedFile(name, new)
    answer: HttpResponse = browser.post(ADDRESS, fields)
    return answer


def begun(answer: HttpResponse) -> RunRecord:
    assert answer.status_code == 302, answer.content.decode()
    return load_run(answer.headers["Location"].rstrip("/").rpartition("/")[2])


def refused(answer: HttpResponse) -> str:
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "The run has not started." in page
    return page


def input_of(run: RunRecord) -> list[Any]:
    file = load_file_reference(run.input_file_id, session_id=run.session_id)
    with reading(file.content_id) as read:
        return [json.loads(line) for line in read(0, content_size(file.content_id)).splitlines()]


def test_a_run_starts_from_a_file_in_a_session_of_its_own(browser: Client, ask: Ask, reader: User) -> None:
    assert "Prompt for each item" in ask(ADDRESS)
    run = begun(send(browser, new=LINES, model="demo", cost="1.5", concurrency="3", system_prompt="Be brief."))
    assert (run.kind, run.spec.template, run.spec.model) == (OperatorKind.LLM, TEMPLATE, "demo")
    assert (run.spec.limits.cost_micros, run.spec.concurrency, run.spec.system_prompt) == (1_500_000, 3, "Be brief.")
    assert input_of(run) == [{"text": "Lovely."}, {"text": "Cold."}]
    session = Session.objects.get(id=run.session_id)
    assert (session.owner_id, session.title) == (reader.pk, "reviews.jsonl")


def test_the_rows_of_a_table_are_items(browser: Client) -> None:
    run = begun(send(browser, new=b"text;stars\r\nLovely.;5\r\n", name="reviews.CSV"))
    assert input_of(run) == [{"text": "Lovely.", "stars": "5"}]
    assert load_file_reference(run.input_file_id, session_id=run.session_id).path == "reviews.jsonl"


def test_items_are_typed(browser: Client) -> None:
    run = begun(send(browser, lines='{"text": "Lovely."}\n\nplain\u2028words\r\n[1, 2]\n', template="{{ item }}"))
    assert input_of(run) == [{"text": "Lovely."}, "plain\u2028words", [1, 2]]


def test_a_file_that_is_there_is_used_in_its_session(browser: Client, ask: Ask, reader: User) -> None:
    file = keep_file(new_session(reader), owner_id=reader.pk, path="notes.jsonl", chunks=[LINES])
    assert "notes.jsonl" in ask(ADDRESS, file=file.id)
    run = begun(send(browser, file=file.id))
    assert (run.session_id, run.input_file_id) == (file.session_id, file.id)


def test_sub_agents_change_something_only_if_that_is_checked(browser: Client) -> None:
    assert begun(send(browser, new=LINES, kind="agentic")).spec.read_only
    run = begun(send(browser, new=LINES, kind="agentic", may_write="on"))
    assert (run.kind, run.spec.read_only) == (OperatorKind.AGENTIC, False)


def test_a_schema_is_what_answers_must_fit(browser: Client) -> None:
    schema = {"type": "object", "properties": {"kind": {"type": "boolean"}}}
    assert begun(send(browser, new=LINES, schema=json.dumps(schema))).spec.schema == schema


def test_another_persons_file_is_not_found(browser: Client) -> None:
    bob = make_user("bob")
    file = keep_file(new_session(bob), owner_id=bob.pk, path="secret.jsonl", chunks=[LINES])
    for answer in (
        browser.get(ADDRESS, {"file": file.id}),
        send(browser, file=file.id),
        browser.get(ADDRESS, {"file": "\0"}),
    ):
        assert answer.status_code == 404
        assert b"secret" not in answer.content
    assert Client().get(ADDRESS).status_code == 302


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Choose a file, or type the items below."),
        ({"new": LINES, "lines": "one"}, "Choose a file or type the items, not both."),
        ({"new": LINES, "template": "Is it kind?"}, "the template must use"),
        ({"new": LINES, "template": "{{ item"}, "template"),
        ({"new": LINES, "template": "{{ item.txt }}"}, "cannot be rendered for this item"),
        ({"lines": "one", "template": "{{ item.txt }}"}, "cannot be rendered for this item"),
        ({"new": LINES, "template": "\0{{ item.text }}"}, "Null characters"),
        ({"new": b""}, "The input has no items."),
        ({"new": b"{\n"}, "cannot be read"),
        ({"new": b"a,a\n1,2\n", "name": "a.csv"}, "must name each column once"),
        ({"new": LINES, "schema": "{"}, "The schema is not JSON: Expecting property name"),
        ({"new": LINES, "schema": "[]"}, "A schema is a JSON object."),
        ({"new": LINES, "schema": "[" * 3_000}, "nested too deeply"),
        ({"new": LINES, "schema": '{"type": "harbour"}'}, "harbour"),
        ({"new": LINES, "model": "nowhere"}, "nowhere"),
        ({"new": LINES, "kind": "harbour"}, "harbour"),
        ({"new": LINES, "concurrency": "100000"}, "must lie between"),
        ({"new": LINES, "cost": "-1"}, "greater than or equal"),
    ],
)
def test_what_cannot_be_started_says_why(browser: Client, reader: User, given: dict[str, Any], said: str) -> None:
    assert said in refused(send(browser, **given))
    assert list_runs(owner_id=reader.pk, session_id=None, limit=1) == []


def test_typed_items_whose_prompt_does_not_fit_make_no_session(browser: Client, reader: User) -> None:
    refused(send(browser, lines="one", template="{{ item.txt }}"))
    assert not Session.objects.filter(owner=reader).exists()


def test_a_file_is_kept_once_though_its_run_is_refused_first(browser: Client, reader: User) -> None:
    page = refused(send(browser, new=LINES, template="{{ item.txt }}"))
    file_id = page.partition('name="file" value="')[2].partition('"')[0]
    # The page sends the chosen file again.
    run = begun(send(browser, LINES, file=file_id))
    assert run.input_file_id == file_id
    assert Session.objects.filter(owner=reader).count() == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"schema": "{"},
            "kein JSON: Name einer Eigenschaft in doppelten Anführungszeichen erwartet in Zeile 1, Spalte 2.",
        ),
        ({"schema": '{"type": NaN}'}, "NaN ist kein JSON."),
        (
            {"new_file": b'{"text": "Lovely'},
            "Er ist kein JSON: Nicht abgeschlossene Zeichenkette in Zeile 1, Spalte 10.",
        ),
        ({"new_file": b"[" * 3_000}, "Er ist zu tief verschachtelt."),
    ],
)
def test_a_german_reader_is_told_in_german_what_is_not_json(browser: Client, given: dict[str, Any], said: str) -> None:
    file = SimpleUploadedFile("reviews.jsonl", given.get("new_file", LINES))
    fields = {"template": TEMPLATE, "kind": "llm"} | given | {"new_file": file}
    assert said in browser.post(ADDRESS, fields, headers={"accept-language": "de"}).content.decode()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ item.txt }}", "es gibt kein &#x27;txt&#x27;, nur &#x27;text&#x27;."),
        ("{{ item.text.x }}", "ein Text hat kein &#x27;x&#x27;."),
        ("{{ item < 1 }}", "&#x27;&lt;&#x27; ist mit diesen Werten nicht möglich (ein Objekt, eine Zahl)."),
        (
            f"{{{{ item|join({'1, ' * 1_900}1) }}}}",
            "&#x27;join&#x27; ist mit diesen Werten nicht möglich (ein Objekt, eine",
        ),
        ("{{ item.items() }}", "schreiben Sie item|items (Zeile 1)."),
    ],
)
def test_a_german_reader_is_told_in_german_what_does_not_fit(browser: Client, template: str, said: str) -> None:
    fields = {"template": template, "kind": "llm", "new_file": SimpleUploadedFile("reviews.jsonl", LINES)}
    assert said in browser.post(ADDRESS, fields, headers={"accept-language": "de"}).content.decode()

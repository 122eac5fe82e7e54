"""Queries about everyone's sessions: what each term finds on both databases, its negation, and pages of the list."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app.queries import completed_compactions
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import TextPart
from mnesis_core.records import GATEWAY, SUB_AGENT, MessageEnd, Thumb, TurnState
from mnesis_core.search.observation import FIELDS, KINDS, parse_observation
from sessions_app.llm.model_store import Audience, enter_model
from sessions_app.models import Session
from sessions_app.record import observed as record_observed
from sessions_app.record import organisation_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.observed import MEASURES, Observed, ObservedSession, list_observed
from sessions_app.record.ratings import rate_answer
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.record.inspected import add_turn, claim, finish, tool_part
from tests.support.record.talks import exchange, new_session, say

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]


def observe(text: str, **page: object) -> list[ObservedSession]:
    compactions = completed_compactions()
    observed = Observed(parse_observation(text, now=timezone.now()), compactions=compactions)
    return list_observed(observed, compactions=compactions, **{"limit": 50} | page)  # type: ignore[arg-type]


def titles(text: str) -> list[str]:
    return sorted(session.title for session in observe(text))


@pytest.fixture
def record() -> dict[str, User]:
    """Three people, each with one session that no term but a few finds."""
    anna, ben = make_user("anna"), make_user("ben o")
    ben.groups.add(Group.objects.create(name="sales"))
    talk = new_session(anna, title="talk", model="gpt-4o")
    _, answer = exchange(talk, "What is the refund policy?", "The policy on a refund is strict.")
    for thumb in (Thumb.UP, Thumb.DOWN):
        rate_answer(talk, answer, owner_id=anna.pk, thumb=thumb)
    with change(talk) as written:
        session_store.archive_session(written)
    work = new_session(ben, title="work", model="demo")
    _, answer = add_turn(work, "Read the log", tool_part("north"))
    rate_answer(work, answer, owner_id=ben.pk, thumb=Thumb.UP)
    finish(work, claim(work))
    failed = new_session(ben, title="failed", model="demo", origin=GATEWAY)
    say(
        failed, ("user", [TextPart(text="many words " * 10_000)]), state=TurnState.FAILED, error_code="PROVIDER_TIMEOUT"
    )
    child = new_session(ben, title="child", model="gpt-4o-mini", origin=SUB_AGENT, parent_id=work)
    with change(child) as written:
        call = turn_store.start_call(
            written, turn_id=None, message_id=None, model="demo", provider_model="demo/chat", parameters={}, manifest=[],
            context_seq=0, digest="0" * 64, estimated_tokens=3,
        )  # fmt: skip
        turn_store.finish_call(written, call, MessageEnd(error_code="RATE_LIMITED", error_message="slow"))
    organisation_store.add_organisation("acme")
    carla = make_user("carla")
    put_into("acme", carla.pk)
    new_session(carla, title="other", model="demo", temporary=True)
    return {"anna": anna, "ben": ben, "carla": carla}


ALL = {"talk", "work", "failed", "child", "other"}
FOUND = {
    "": ALL,
    "person:anna": {"talk"},
    'person:anna,"ben o"': {"talk", "work", "failed", "child"},
    "person:BE*": {"work", "failed", "child"},
    "group:sales": {"work", "failed", "child"},
    "organisation:acme": {"other"},
    "model:gpt-4o": {"talk"},
    "model:gpt-*": {"talk", "child"},
    "tool:read_log": {"work"},
    "error:provider_timeout": {"failed"},
    "error:RATE_*": {"child"},
    "error:*": {"failed", "child"},
    "state:failed": {"failed"},
    "state:failed,completed": {"failed", "talk", "work"},
    "origin:gateway": {"failed"},
    "title:OR": {"work"},
    "title:%": set(),
    "is:archived": {"talk"},
    "is:compacted": {"work"},
    "is:imported": set(),
    "is:temporary": {"other"},
    "is:sub-agent": {"child"},
    "over-window": {"failed"},
    "feedback:down": {"talk"},
    "feedback:up": {"work"},
    "feedback:up,down": {"talk", "work"},
    "messages>=2": {"talk", "work"},
    "turns<1": {"child", "other"},
    "calls=1": {"work", "child"},
    "tokens>100": {"work"},
    "cost>0.000001": {"work"},
    "compactions>0": {"work"},
    "after:1h": ALL,
    "before:1h": set(),
    "refund": {"talk"},
    "refund policy strict": {"talk"},
    '"refund policy"': {"talk"},
    '"policy refund"': set(),
    "refun*": {"talk"},
    "north": {"work"},
    "person:anna north": set(),
    "model:nosuch": set(),
    "person:anna model:gpt-4o is:archived refund messages=2": {"talk"},
}


@pytest.mark.slow
def test_each_term_finds_its_sessions_and_its_negation_the_others(
    record: dict[str, User], subtests: pytest.Subtests
) -> None:
    for text, found in FOUND.items():
        with subtests.test(text):
            assert set(titles(text)) == found
            if text and " " not in text.split('"')[0]:
                assert set(titles(f"-{text}")) == ALL - found
    covered = {term.name for text in FOUND for term in parse_observation(text, now=timezone.now())}
    assert covered == {*FIELDS, ""}
    assert {kind for kind in KINDS if f"is:{kind}" in FOUND or kind in FOUND} == set(KINDS)


def test_a_row_says_what_a_session_took(record: dict[str, User]) -> None:
    [work] = observe("title:work")
    assert (work.person, work.organisation, work.model, work.state) == ("ben o", "default", "demo", "completed")
    assert (work.messages, work.turns, work.calls, work.errors, work.compactions) == (2, 1, 1, 0, 1)
    assert work.tokens > 100
    assert [session.errors for session in observe("error:* title:failed,child")] == [1, 1]


def test_deleted_sessions_are_not_among_them(record: dict[str, User]) -> None:
    with change(Session.objects.get(title="work").id) as written:
        session_store.soft_delete_session(written)
    assert titles("") == sorted(ALL - {"work"})
    assert titles("north") == []


def test_pages_go_on_from_each_other_with_as_many_statements_for_many_as_for_few(record: dict[str, User]) -> None:
    whole = observe("")
    seen: list[ObservedSession] = []
    while page := observe("", limit=2, before=(seen[-1].updated_at, seen[-1].id) if seen else None):
        seen += page
    assert seen == whole
    assert [session.updated_at for session in whole] == sorted((s.updated_at for s in whole), reverse=True)
    with CaptureQueriesContext(connection) as few:
        observe("", limit=1)
    with CaptureQueriesContext(connection) as many:
        observe("")
    assert len(few) == len(many) == 4


@pytest.mark.slow
def test_hostile_values_find_nothing_and_break_nothing(record: dict[str, User], subtests: pytest.Subtests) -> None:
    for value in ("\0", "\ud800", "%", "_", "\\", "' OR 1=1 --", "\u202e", "a" * 400):
        for name, field in FIELDS.items():
            if field.takes == "name":
                with subtests.test(f"{name}:{value[:9]!r}"):
                    assert observe(f'{name}:"{value}"') == []
                    assert observe(f'{name}:"{value}"*') == []
        assert observe(f'"word{value}"') == []


def test_of_words_that_are_in_too_many_texts_only_the_newest_are_looked_at(
    record: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_observed, "MOST_TEXTS", 1)
    exchange(new_session(record["anna"], title="newer"), "A refund?", "No.")
    observed = Observed(parse_observation("refund", now=timezone.now()), compactions=completed_compactions())
    assert observed.cut_words == ["refund"]
    assert titles("refund") == ["newer"]


def test_a_session_is_over_the_window_that_its_model_has_here(record: dict[str, User]) -> None:
    assert "over_window" in MEASURES
    spec = ModelSpec(alias="gpt-4o", litellm_model="openai/x", context_window=4, max_output_tokens=2)
    enter_model(spec, api_key_env="", audience=Audience(groups=[], users=[]))
    assert titles("over-window") == ["failed", "talk"]

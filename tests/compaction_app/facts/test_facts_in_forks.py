"""A fork begins with the facts that rest on what it copies, bound to the copies, and with what was forbidden."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from compaction_app.facts import store
from compaction_app.facts.queries import every_fact
from compaction_app.facts.remember import FactDraft, Said, add_fact
from mnesis_core.facts import FactKind, FactRecord
from sessions_app.record import histories, session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from tests.support.record.talks import exchange, new_session

pytestmark = pytest.mark.both_databases
SAID = ("I drink tea \x00 and \ud800 😀.", "My dog is Max.", "I drink coffee now.")


@pytest.fixture
def talk(owner: User) -> str:
    session_id = new_session(owner)
    for text in SAID:
        exchange(session_id, text, "Noted.")
    return session_id


def quoted(session_id: str, statement: str, seq: int, *, subject: str = "", owner: User) -> FactRecord:
    """A fact that quotes all of message ``seq``."""
    message = load_messages(session_id, after=seq - 1)[0]
    said = Said(message_id=message.id, text=message.parts[0].part.text)  # type: ignore[union-attr]
    draft = FactDraft(statement=statement, kind=FactKind.PREFERENCE, subject=subject, said=said)
    return add_fact(session_id, draft, owner_id=owner.pk)


def written(
    session_id: str, statement: str, *, subject: str = "", owner: User, corrects: str | None = None
) -> FactRecord:
    draft = FactDraft(statement=statement, kind=FactKind.PREFERENCE, subject=subject)
    return add_fact(session_id, draft, owner_id=owner.pk, corrects=corrects)


def fork(session_id: str, seq: int, owner: User) -> str:
    message = load_messages(session_id, after=seq - 1)[0]
    return lifecycle.fork_session(session_id, owner=owner, at_message_id=message.id).id


def facts(session_id: str) -> list[tuple[str, str]]:
    assert verify_session(session_id).problems == []
    return [(fact.statement, fact.state.value) for fact in every_fact(session_id)]


def test_a_fact_is_bound_to_the_copy_of_the_words_that_it_quotes(talk: str, owner: User) -> None:
    original = quoted(talk, "Drinks tea.", 1, subject="drinks", owner=owner)
    forked = fork(talk, 4, owner)
    [fact] = every_fact(forked)
    copy = load_messages(forked)[0]
    [quote] = fact.quotes
    assert (quote.text, quote.message_id, quote.part_id) == (SAID[0], copy.id, copy.parts[0].id)
    kept = ("statement", "kind", "subject", "said_at", "said_seq", "method", "salience")
    assert [getattr(fact, name) for name in kept] == [getattr(original, name) for name in kept]
    assert facts(forked) == facts(talk) == [("Drinks tea.", "live")]


def test_what_was_said_after_the_fork_counts_for_nothing_there(talk: str, owner: User) -> None:
    quoted(talk, "Drinks tea.", 1, subject="drinks", owner=owner)
    quoted(talk, "Has a dog.", 3, owner=owner)
    quoted(talk, "Drinks coffee.", 5, subject="drinks", owner=owner)
    assert facts(fork(talk, 2, owner)) == [("Drinks tea.", "live")]
    assert facts(fork(talk, 4, owner)) == [("Drinks tea.", "live"), ("Has a dog.", "live")]
    assert facts(fork(talk, 5, owner)) == [("Has a dog.", "live"), ("Drinks coffee.", "live")]


def test_what_a_person_corrected_or_withdrew_does_not_come_back(talk: str, owner: User) -> None:
    wrong = quoted(talk, "Drinks te.", 1, owner=owner)
    written(talk, "Drinks tea.", owner=owner, corrects=wrong.id)
    gone = quoted(talk, "Has a dog.", 3, owner=owner)
    with change(talk) as record:
        store.withdraw_fact(record, gone.id)
    assert facts(fork(talk, 4, owner)) == []
    assert facts(fork(talk, 6, owner)) == [("Drinks tea.", "live")]


def test_what_was_forbidden_stays_forbidden_in_a_fork(talk: str, owner: User) -> None:
    first = quoted(talk, "Drinks tea.", 1, subject="drinks", owner=owner)
    later = quoted(talk, "Drinks coffee.", 5, subject="drinks", owner=owner)
    quoted(talk, "Has \x00.", 1, subject="drinks", owner=owner)
    with change(talk) as record:
        store.forbid_fact(record, first.id)
        store.forbid_fact(record, later.id)
    forked = fork(talk, 2, owner)
    assert facts(forked) == [("Drinks tea.", "forbidden"), ("Drinks coffee.", "forbidden"), ("Has \x00.", "live")]
    assert [len(fact.quotes) for fact in every_fact(forked)] == [1, 0, 1]


def test_a_fork_of_a_branch_has_the_facts_of_its_path(owner: User) -> None:
    talk = new_session(owner)
    exchange(talk, "I drink tea.", "Noted.")
    exchange(talk, "My dog is Max.", "Noted.")
    with change(talk) as record:
        branch = session_store.begin_branch(record, parent=0, after_seq=2)
        session_store.choose_branch(record, branch)
    exchange(talk, "My cat is Mia.", "Noted.")
    for statement, seq in (("Drinks tea.", 1), ("Has a dog.", 3), ("Has a cat.", 5)):
        quoted(talk, statement, seq, owner=owner)
    written(talk, "Likes animals.", owner=owner)
    forked = fork(talk, 6, owner)
    found = every_fact(forked)
    assert [(fact.statement, fact.said_seq) for fact in found] == [
        ("Drinks tea.", 1),
        ("Has a cat.", 3),
        ("Likes animals.", 4),
    ]
    assert [quote.seq for fact in found for quote in fact.quotes] == [1, 3]
    assert facts(forked)


def test_a_fork_that_is_copied_in_steps_gets_its_facts_with_the_last_one(
    talk: str, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted(talk, "Drinks tea.", 1, owner=owner)
    monkeypatch.setattr(histories, "TURNS", 1)
    last = load_messages(talk)[-1]
    id = histories.begin_fork(load_session(talk), owner=owner, last=last, title="Fork")
    for _ in SAID[:-1]:
        assert not lifecycle.finish_fork(id, deadline=0)
        assert every_fact(id) == []
    assert lifecycle.finish_fork(id, deadline=0)
    assert lifecycle.finish_fork(id)
    assert facts(id) == [("Drinks tea.", "live")]

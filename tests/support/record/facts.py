"""Facts of a session: one that quotes, one that supersedes it, and one that was withdrawn."""

from __future__ import annotations

from datetime import UTC, datetime

from compaction_app.facts import store
from mnesis_core.errors import MnesisError
from mnesis_core.facts import LONGEST_STATEMENT, FactKind, NewFact, Place, find_quote
from mnesis_core.messages import StoredMessage
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message

SAID_AT = datetime(2026, 1, 9, 12, tzinfo=UTC)


def new_fact(
    statement: str = "The harbour closes at nine.", *, places: tuple[Place, ...] = (), **values: object
) -> NewFact:
    """A fact that waits to be written, but for the values given."""
    usual = {"kind": FactKind.ENTITY, "subject": "harbour", "said_at": SAID_AT, "said_seq": 1}
    return NewFact(statement=statement[:LONGEST_STATEMENT], places=places, **usual | values)  # type: ignore[arg-type]


def place_of(message: StoredMessage, quote: str) -> Place:
    """Where a message says this."""
    place = find_quote([message], quote)
    assert place is not None
    return place


def add_facts(session_id: str, message_id: str, text: str, *, reflection_id: str | None = None) -> list[str]:
    """Facts in every state, the live one last; the message has the text."""
    place = place_of(load_message(message_id, session_id=session_id), text)
    with change(session_id) as record:
        first = store.record_fact(record, new_fact(text, subject=text, places=(place,), reflection_id=reflection_id))
        withdrawn = store.record_fact(record, new_fact(text, subject=""))
        store.withdraw_fact(record, withdrawn)
        live = store.record_fact(
            record,
            new_fact(
                text, subject=text, said_seq=2, valid_from=SAID_AT, valid_to=SAID_AT.replace(year=2027), model="demo"
            ),
        )
    return [first, withdrawn, live]


def add_reflection(session_id: str, summary_id: str, *, error: MnesisError | None = None) -> str:
    """A search for facts that has ended, and found one unless it failed."""
    with change(session_id) as record:
        id = store.request_reflection(record, summary_id, prompt_version="facts.1")
        assert id is not None
        spent = store.Spending(model="demo", tokens_input=9, tokens_output=9, cost_micros=9)
        store.end_reflection(record, id, spent, found=int(error is None), refused=2, error_code=error and error.code)
    return id

"""Facts that come from elsewhere: from sessions that hold them, with a fork, and with an imported transcript."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_app.facts import store
from compaction_app.facts.queries import every_fact, facts_reaching
from mnesis_core.config import Config
from mnesis_core.facts import (
    USUAL_SALIENCE,
    Copied,
    FactMethod,
    NewFact,
    facts_of_fork,
    facts_to_copy,
    find_quote,
    forbidden_of_fork,
)
from mnesis_core.messages import StoredMessage
from mnesis_core.records import SessionRecord
from mnesis_core.transcripts.values import TranscriptFact
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_messages_by_ids, seqs_of_session, seqs_on_path
from sessions_app.record.session_queries import Forking

# Facts of other sessions that reach this one: copied before its first call of a model, and when a compaction ends.
#
# In between they stay as they are, so that the beginning of the prompt does too; only what no longer reaches the
# session is left out at once (``load_standing_facts``).


def takes_held_facts(session: SessionRecord, config: Config) -> bool:
    """Return whether a session has room for facts of others.

    A temporary chat has none, and neither has a sub-agent: what it has to know stands in its task.
    """
    has_room = bool(config.retrieval.max_facts and config.retrieval.max_held_facts)
    return has_room and not (session.is_sub_agent or session.is_temporary)


def copy_held_facts(record: Change, session: SessionRecord, config: Config) -> None:
    """Copy the facts of other sessions that reach this one and that it has not had before, as far as it has room for them."""
    if record.archived or not takes_held_facts(session, config):
        return
    held = facts_reaching(session.id, owner_id=record.owner_id, organisation=record.organisation)
    if not held:
        return
    record.flush()
    new = facts_to_copy(held, every_fact(session.id), most=config.retrieval.max_held_facts)
    with record.unasked():
        for fact in store.without_forbidden(record, new):
            store.record_fact(record, fact)


# The facts that a fork begins with, written in the change that copies its last messages.


def copy_facts(record: Change, fork: Forking) -> None:
    """Write facts of the original into a fork that has all its messages, bound to the copies of the words that they quote."""
    facts = every_fact(fork.source_id)
    if not facts:
        return
    record.flush()
    seqs = seqs_on_path(fork.source_id, fork.path, last_seq=fork.last_seq)
    number = {seq: place for place, seq in enumerate(seqs, start=1)}
    ids = {seq: id for id, seq in seqs_of_session(fork.id).items()}
    quoted = {quote.message_id: number[quote.seq] for fact in facts for quote in fact.quotes if quote.seq in number}
    originals = load_messages_by_ids(list(quoted), session_id=fork.source_id)
    copies = load_messages_by_ids([ids[place] for place in quoted.values()], session_id=fork.id)
    parts = {
        old.id: new.id
        for original, copy in zip(originals, copies, strict=True)
        for old, new in zip(original.parts, copy.parts, strict=True)
    }
    copied = Copied(parts=parts, seqs=seqs)
    # First those that are withdrawn at once, as each takes the place of what stands of its kind and subject.
    for fact in forbidden_of_fork(facts, copied):
        store.forbid_fact(record, store.record_fact(record, fact))
    for fact in facts_of_fork(facts, copied):
        store.record_fact(record, fact)


# Facts that came with an imported transcript. Only those whose words were said are kept, bound to these words.


def keep_facts(session_id: str, said: Sequence[tuple[TranscriptFact, int]]) -> int:
    """Write facts, each with the number of the message that says it, and return how many are new.

    What the session has had as a fact before is left alone, whatever became of it since.
    """
    ids = {seq: id for id, seq in seqs_of_session(session_id).items()}
    messages = load_messages_by_ids(list({ids[seq]: None for _, seq in said}), session_id=session_id)
    by_seq = {message.seq: message for message in messages}
    with change(session_id) as record:
        if record.archived:
            return 0
        known = {(fact.kind, fact.subject, fact.statement) for fact in every_fact(session_id)}
        found = [fact for one, seq in said if (fact := _fact(one, by_seq[seq])) is not None]
        new = [fact for fact in found if (fact.kind.value, fact.subject, fact.statement) not in known]
        allowed = store.without_forbidden(record, new)
        for fact in allowed:
            store.record_fact(record, fact)
    return len(allowed)


def _fact(said: TranscriptFact, message: StoredMessage) -> NewFact | None:
    place = find_quote([message], said.statement)
    if place is None:
        return None
    return NewFact(
        statement=said.statement,
        kind=said.kind,
        subject=said.subject,
        said_at=message.created_at,
        said_seq=message.seq,
        salience=USUAL_SALIENCE if said.salience is None else said.salience,
        method=FactMethod.MODEL,
        places=(place,),
    )

"""The facts that a fork begins with, written in the change that copies its last messages."""

from __future__ import annotations

from compaction_app.facts import store
from compaction_app.facts.queries import every_fact
from mnesis_core.facts.forks import Copied, facts_of_fork, forbidden_of_fork
from sessions_app.record.change import Change
from sessions_app.record.message_queries import load_messages_by_ids, seqs_of_session, seqs_on_path
from sessions_app.record.session_queries import Forking


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

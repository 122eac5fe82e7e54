"""Facts that came with an imported transcript. Only those whose words were said are kept, bound to these words."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_app.facts import store
from compaction_app.facts.queries import every_fact
from mnesis_core.facts.quotes import find_quote
from mnesis_core.facts.values import USUAL_SALIENCE, FactMethod, NewFact
from mnesis_core.messages import StoredMessage
from mnesis_core.transcripts.values import TranscriptFact
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages_by_ids, seqs_of_session


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

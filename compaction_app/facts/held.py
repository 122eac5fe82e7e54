"""Facts of other sessions that reach this one: copied before its first call of a model, and when a compaction ends.

In between they stay as they are, so that the beginning of the prompt does too; only what no longer reaches the session is
left out at once (``load_standing_facts``).
"""

from __future__ import annotations

from compaction_app.facts import store
from compaction_app.facts.queries import every_fact, facts_reaching
from mnesis_core.config import Config
from mnesis_core.facts.held import facts_to_copy
from mnesis_core.records import SessionRecord
from sessions_app.record.change import Change


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

"""Retrieval: the passages of summarised messages that may answer the newest question (seed 004)."""

from __future__ import annotations

from compaction_app.context.state import ContextState, Frame, read_newest_state
from mnesis_core.context.additions import Found, Passages, choose_passages, take_refill
from mnesis_core.context.branches import END, LINE
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.context.wording import is_tombstoned
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import Message, StoredMessage, text_of
from mnesis_core.search.ranking import LONGEST_QUESTION, parse_question
from sessions_app.record.branch_queries import path_in
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.search.ranked import AROUND, search_ranked
from sessions_app.search.search import Filters, Scope, merged

LARGEST_SHARE, LARGEST_FREE_SHARE = 6, 3
"""Passages take at most one part in so many of the usable tokens: in six, or in three of a prompt with as much free room."""
HITS_A_PASSAGE = 2
"""Hits that are asked for each passage, since those which touch become one."""


class Retriever:
    """The passages of one turn. They stay the same from call to call, so that a provider's cache of the prompt holds.

    Only another question, a compaction and another model's budget have them looked for again.
    """

    def __init__(self) -> None:
        self._found_for: object = None
        self._passages: Passages | None = None

    def passages_for(self, state: ContextState) -> Passages | None:
        question = next((message for message in reversed(_shown(state)) if message.role == "user"), None)
        summaries = tuple(entry.id for entry in state.entries if isinstance(entry, SummaryEntry))
        wanted = (question and question.id, summaries, state.budget)
        if wanted != self._found_for:
            self._found_for = wanted
            parts = [stored.part for stored in question.parts] if question else []
            self._passages = retrieve(state, text_of(tuple(parts)), question=question)
        return self._passages


def size_of_prompt(frame: Frame, said: Message) -> int:
    """Return the tokens of the prompt that will be sent when this has been said, with the tools of the last call."""
    state = read_newest_state(frame, said=said)
    prompt = state.assemble(passages=Retriever().passages_for(state))
    return min(prompt.used_tokens + state.tool_tokens, state.budget.usable)


def _has_tombstone(message: StoredMessage) -> bool:
    return any(is_tombstoned(stored.part) for stored in message.parts)


def retrieve(state: ContextState, text: str, *, question: StoredMessage | None = None) -> Passages | None:
    """Return the passages that may answer a question of the state's session; ``None`` where there are none.

    :param question: the message that asks; ``None`` where it is not said yet
    """
    config, session = state.config.retrieval, state.session
    usable = int(state.budget.usable / state.calibration.ratio)
    tokens, fewer = (min(config.max_tokens, usable // share) for share in (LARGEST_FREE_SHARE, LARGEST_SHARE))
    is_gone = (isinstance(entry, SummaryEntry) or _has_tombstone(entry.message) for entry in state.entries)
    if not (config.max_passages and fewer and any(is_gone)):
        return None
    asked, before = text[:LONGEST_QUESTION], question.seq if question else END
    scope = Scope(
        owner_id=session.owner_id,
        session_id=session.id,
        before_seq=before,
        filters=Filters(compacted=True),
    )
    try:
        found = search_ranked(scope, asked, limit=HITS_A_PASSAGE * config.max_passages, around=AROUND)
        words = parse_question(asked)
    except InvalidRequest:  # There is no word in it.
        return None
    path = path_in(session, state.branch) or LINE
    verbatim = {message.id for message in _shown(state) if not _has_tombstone(message)}
    ranks: dict[str, int] = {}
    for rank, hit in enumerate(found.hits):
        ranks.setdefault(hit.message_id or "", rank)
    quoted = [
        [
            (line.message_id, ranks.get(line.message_id))
            for line in passage.lines
            if line.seq < before and line.message_id not in verbatim and path.has(passage.hits[0].branch, line.seq)
        ]
        for passage in merged(found.hits, around=AROUND)
    ]
    ids = list(dict.fromkeys(id for passage in quoted for id, _ in passage))
    messages = {message.id: message for message in load_messages_by_ids(ids, session_id=session.id)}
    wanted = [[Found(message=messages[id], rank=rank) for id, rank in passage] for passage in quoted]
    passages = choose_passages(wanted, words, most=config.max_passages, tokens=tokens, fewer_tokens=fewer)
    return passages.before(question.id) if passages and question else passages


def _shown(state: ContextState) -> list[StoredMessage]:
    """Return the messages that a prompt of the context has word for word, in order."""
    pinned = {message.id for message in state.pinned}
    refill = [
        item for item in take_refill(state.refill, state.refill_room, without=pinned) if not item.row["shortened"]
    ]
    again = [item.entry.message for item in refill if isinstance(item.entry, MessageEntry)]
    return [*state.pinned, *again, *(entry.message for entry in state.entries if isinstance(entry, MessageEntry))]

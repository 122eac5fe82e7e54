"""Claims: each sentence of a summary and the messages that it rests on in the end; aligned by a worker, and read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django_q.tasks import async_task

from compaction_app.models import Claim, SummaryNode
from compaction_app.queries import load_run, load_summaries, load_summary
from compaction_app.store import record_claims
from mnesis_core.actor import read_actor
from mnesis_core.compaction import lineage
from mnesis_core.compaction.lineage import METHOD, Support, Told, told_in_messages, told_in_summaries
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.records import SummaryRecord
from mnesis_core.text import decode_text, encode_text
from sessions_app.record.actor import acting_as
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages_by_ids, seqs_of_messages
from sessions_app.record.session_queries import load_session

_Key = tuple[str, int]  # a summary's id, and the number of a sentence of it
_ORDER = (Support.NONE, Support.PARTLY, Support.SUPPORTED, Support.QUOTED)
DEEPEST = 200  # steps from a condensed summary down; summaries that were tampered with may go in circles
TASK = "compaction_app.tasks.align"
LONGEST_SECONDS = 300
SPEAKER = "speaker_"  # the label of a session that names who speaks in a role


@dataclass(frozen=True, slots=True, kw_only=True)
class RestsOn:
    """A message that a sentence rests on, through all summaries between them."""

    message_id: str
    part_id: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    id: str
    number: int
    start: int
    end: int
    text: str
    support: Support
    """How it is supported in the end: no better than the best of the sentences that it rests on."""
    share: int
    missing: tuple[str, ...]
    method: str
    places: tuple[tuple[str, str | int], ...]  # as they are stored: what it rests on one step down
    messages: tuple[RestsOn, ...]
    created_at: datetime


def is_aligned(summary_id: str, *, session_id: str, method: str = METHOD) -> bool:
    return Claim.objects.filter(session_id=session_id, summary_id=summary_id, method=method).exists()


def unaligned_summaries(session_id: str, *, method: str = METHOD) -> list[str]:
    """Return the ids of a session's summaries that have no claims, those that others are made of first."""
    aligned = Claim.objects.filter(session_id=session_id, method=method).values("summary_id")
    rows = SummaryNode.objects.filter(session_id=session_id).exclude(id__in=aligned)
    return list(rows.order_by("depth", "first_seq", "id").values_list("id", flat=True))


def load_claims(summary: SummaryRecord, *, method: str = METHOD) -> list[ClaimRecord]:
    """Return the sentences of a summary in order, none where it was not aligned; a query for each step down, and one more."""
    rows = list(
        Claim.objects.filter(session_id=summary.session_id, summary_id=summary.id, method=method).order_by("number")
    )
    if not rows:
        return []
    under: dict[_Key, Claim] = {}  # what claims of a condensed summary rest on, through all steps down
    wanted = _places_of(rows)
    for _ in range(DEEPEST):
        if not wanted:
            break
        found = Claim.objects.filter(
            session_id=summary.session_id,
            method=method,
            summary_id__in={id for id, _ in wanted},
            number__in={number for _, number in wanted},
        )
        step = {(row.summary_id, row.number): row for row in found if (row.summary_id, row.number) in wanted}
        under |= step
        wanted = _places_of(step.values()) - under.keys()
    ids = {id for row in (*rows, *under.values()) for id, ref in _places(row) if isinstance(ref, str)}
    seqs = seqs_of_messages(ids, session_id=summary.session_id)
    stored = encode_text(summary.text)
    return [_claim(row, under, seqs, stored) for row in rows]


def _places_of(rows: Collection[Claim]) -> set[_Key]:
    return {(id, ref) for row in rows for id, ref in _places(row) if isinstance(ref, int)}


def _places(row: Claim) -> list[tuple[str, str | int]]:
    """Return a row's places; what an imported row has in another form is none."""
    pairs = (
        [pair for pair in row.places if isinstance(pair, list) and len(pair) == 2]
        if isinstance(row.places, list)
        else []
    )
    return [(id, ref) for id, ref in pairs if isinstance(id, str) and isinstance(ref, str | int)]


def _in_the_end(row: Claim, under: Mapping[_Key, Claim], known: dict[str, Support]) -> Support:
    if row.pk not in known:
        said = next((word for word in Support if word.value == row.support), Support.NONE)
        known[row.pk] = said  # Rows that were tampered with may go in circles.
        below = [under[id, ref] for id, ref in _places(row) if isinstance(ref, int) and (id, ref) in under]
        best = max((_in_the_end(one, under, known) for one in below), key=_ORDER.index, default=said)
        known[row.pk] = min(said, best, key=_ORDER.index)
    return known[row.pk]


def _claim(row: Claim, under: Mapping[_Key, Claim], seqs: Mapping[str, int], stored: str) -> ClaimRecord:
    messages: dict[tuple[str, str], RestsOn] = {}
    todo, seen = [row], {row.pk}
    while todo:
        for id, ref in _places(todo.pop()):
            if isinstance(ref, str):
                if id in seqs:
                    messages[id, ref] = RestsOn(message_id=id, part_id=ref, seq=seqs[id])
            elif (below := under.get((id, ref))) is not None and below.pk not in seen:
                seen.add(below.pk)
                todo.append(below)
    places = _places(row)
    return ClaimRecord(
        id=row.id,
        number=row.number,
        start=row.text_start,
        end=row.text_end,
        text=decode_text(stored[row.text_start : row.text_end]),
        support=_in_the_end(row, under, {}),
        share=row.share,
        missing=tuple(word for word in row.missing if isinstance(word, str)) if isinstance(row.missing, list) else (),
        method=row.method,
        places=tuple(places),
        messages=tuple(sorted(messages.values(), key=lambda one: (one.seq, one.part_id))),
        created_at=row.created_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    total: int
    unsupported: int
    partly: int


def tally(claims: Sequence[ClaimRecord]) -> Tally:
    supports = [claim.support for claim in claims]
    return Tally(total=len(supports), unsupported=supports.count(Support.NONE), partly=supports.count(Support.PARTLY))


# Align the sentences of a summary with what it was made of: the worker's task, queued with the summary and never in
# its way.
#
# No model is asked, so it is done whatever reflection does, and whoever is late does nothing again.


def request_alignment(summary_id: str) -> None:
    """Queue the alignment of a summary, in the change that writes it."""
    async_task(TASK, summary_id=summary_id, timeout=LONGEST_SECONDS)


def align(*, summary_id: str, **_later: object) -> None:
    """Align one summary: the worker's task. It may run twice or late, since the claims that are there decide."""
    summary = load_summary(summary_id)
    actor = load_run(summary.run_id).actor if summary.run_id else ""
    with suppress(SessionNotFoundError), acting_as(read_actor(actor).later("alignment")):
        align_summary(summary)


def align_summary(summary: SummaryRecord) -> bool:
    """Find what a summary's sentences rest on and write it; return whether this was done now.

    :raises SessionNotFoundError: its session was deleted.
    """
    if is_aligned(summary.id, session_id=summary.session_id):
        return False
    claims = lineage.align(summary.text, _told(summary))
    # Two workers may come this far at once. A lease would spare one of them some processor and no money, so there is none:
    # a change has the session alone, and in it ``record_claims`` leaves what is there.
    with change(summary.session_id) as record:
        return record_claims(record, summary.id, claims)


def _told(summary: SummaryRecord) -> Iterable[Told]:
    ids = [id for _, id in summary.source_ids]
    if summary.kind == "condensed":
        sources = load_summaries(ids, session_id=summary.session_id)
        return told_in_summaries({source.id: source.text for source in sources})
    labels = load_session(summary.session_id).labels
    speakers = {name.removeprefix(SPEAKER): said for name, said in labels.items() if name.startswith(SPEAKER)}
    return told_in_messages(load_messages_by_ids(ids, session_id=summary.session_id), speakers)

"""What the pages make of entries of the ledger and of verifications: links, words and numbers for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from audit_app.entries import Entry, EntryLine, actor_of, message_places
from audit_app.queries import Found, VerificationRecord
from mnesis_core.ids import find_ids, is_id
from sessions_app.inspecting import Inspected, address_of
from sessions_app.rendering import format_duration, show_invisible

IDS_SHOWN, FACTS_SHOWN = 2, 3
SHORT = 7
LONG_WAIT_SECONDS = 20
MANY = 2_000
"""Entries; of fewer, how quickly they were read says nothing."""
LONGEST_BODY = 30_000
"""Characters of a body that are shown; the whole has an address of its own."""
_NAMED = re.compile(r'"([a-z_]{1,40})":\[?"([a-z]{2,8}_[0-9A-Z]{26})"')
_FACTS = re.compile(r'"(?:role|state|outcome|error_code|reason|trigger)":"([A-Za-z_]{1,40})"')
_ROLE = re.compile(r'"role":"([a-z]{1,20})"')
_FIRST = ("call_id", "summary_id", "message_id", "part_id", "part_ids", "file_id", "inbox_id", "preview_id", "run_id")
"""The names of what an entry is about, the closest first; it names what that belongs to as well."""
_PAGES = {"turn": "inspect-turn", "run": "inspect-compaction", "call": "inspect-call", "sum": "inspect-summary"}
KINDS = {
    "chain": "An entry was edited, swapped or removed.",
    "head": "The end was cut off, or the hashes were made anew.",
    "row": "A row or a value was edited.",
    "missing": "A row was removed.",
    "unexplained": "A row or a value was put in.",
    "replay": "A state, a context item or a counter was changed.",
    "content": "The bytes of a file were changed or taken away.",
    "owner": "The session was given to somebody else.",
    "search": "The search index is not what the record says.",
    "damage": "The database cannot read what was written.",
    "guard": "A guard of the database is missing.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An id, and where what it names is to be seen."""

    id: str
    address: str
    """Empty where there is no page of it, or this reader has none."""

    @property
    def short(self) -> str:
        """The id for a narrow column: what it is, and how it ends."""
        kind, _, rest = self.id.partition("_")
        return f"{kind}_…{rest[-SHORT:]}" if len(rest) > SHORT else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine:
    """An entry in the list."""

    seq: int
    number: str
    type: str
    actor: str
    about: Sequence[Link]
    facts: Sequence[str]
    at: datetime | None
    hash: str
    prev_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCommitment:
    """A commitment of an entry."""

    table: str
    link: Link
    columns: str
    commitment: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """One entry."""

    entry: Entry
    number: str
    type: str
    actor: str
    body: str
    is_cut: bool
    problem: str
    links: Sequence[Link]
    commitments: Sequence[ShownCommitment]
    more: str
    """How many commitments are not shown; empty: none."""
    previous: int | None
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProblem:
    """One thing that is not as it was written."""

    kind: str
    meaning: str
    detail: str
    seq: int
    number: str
    id: str
    """Something that it names, to be looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFound:
    """What the last verification found."""

    at: datetime
    took: str
    pace: str
    number: str
    head_hash: str
    entries: str
    commitments: str
    newer: str
    """How many entries came since; empty: none."""
    problem_count: int
    problems: Sequence[ShownProblem]
    more: str
    is_unbound: bool
    is_moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVerification:
    """The strip above the ledger."""

    state: str
    """As ``VerificationRecord.state``; empty where nobody asked so far."""
    is_live: bool
    waited: str
    """For how long it has waited for a worker, where that is longer than it should be."""
    done: int
    total: int
    progress: str
    pace: str
    found: ShownFound | None


def shown_lines(lines: Sequence[EntryLine], about: Inspected) -> list[ShownLine]:
    """Entries of a page, with links to what they are about; two queries."""
    named = [_named(f"{line.head}\n{line.tail}") for line in lines]
    places = message_places(about.id, {id for ids in named for id in ids})
    return [_line(line, ids, about, places) for line, ids in zip(lines, named, strict=True)]


def shown_entry(entry: Entry, about: Inspected) -> ShownEntry:
    """One entry with its body in lines, and links to everything that it names."""
    text = entry.body if entry.told is None else json.dumps(entry.told, indent=2, ensure_ascii=False)
    ids = list(find_ids(text[:LONGEST_BODY]))[:30]
    places = message_places(about.id, {*ids, *(one.id for one in entry.bound if is_id(one.id))})
    role = entry.told.get("role", "") if isinstance(entry.told, dict) else ""
    return ShownEntry(
        entry=entry,
        number=f"{entry.seq:,}",
        type=show_invisible(entry.type),
        actor=actor_of(entry.type, str(role)),
        body=show_invisible(text[:LONGEST_BODY]),
        is_cut=len(text) > LONGEST_BODY,
        problem=entry.problem,
        links=[_link(id, about, places) for id in ids],
        commitments=[
            ShownCommitment(
                table=show_invisible(one.table),
                link=_link(one.id, about, places),
                columns=show_invisible(", ".join(one.columns)),
                commitment=show_invisible(one.commitment),
                state=one.state,
            )
            for one in entry.bound
        ],
        more=f"{entry.bound_count - len(entry.bound):,}" if entry.bound_count > len(entry.bound) else "",
        previous=entry.seq - 1 if entry.seq > 1 else None,
        next=entry.seq + 1 if entry.seq < about.event_seq else None,
    )


def shown_verification(record: VerificationRecord | None, about: Inspected, *, now: datetime) -> ShownVerification:
    """How far a verification is, and what the last one found."""
    if record is None:
        return ShownVerification(state="", is_live=False, waited="", done=0, total=0, progress="", pace="", found=None)
    done, total = min(record.entries_done, record.entries_total), max(1, record.entries_total)
    seconds = (now - record.started_at).total_seconds() if record.started_at else 0
    waited = (now - record.asked_at).total_seconds()
    return ShownVerification(
        state=record.state,
        is_live=record.is_live,
        waited=format_duration(waited) if record.state == "queued" and waited > LONG_WAIT_SECONDS else "",
        done=done,
        total=total,
        progress=f"{done:,} of {record.entries_total:,} entries",
        pace=_pace(done, seconds),
        found=None if record.found is None else _found(record.found, about),
    )


def _found(found: Found, about: Inspected) -> ShownFound:
    seconds = found.duration_ms / 1000
    problems = [_problem(*problem) for problem in found.problems]
    return ShownFound(
        at=found.at,
        took=format_duration(seconds),
        pace=_pace(found.entries, seconds),
        number=f"{found.seq:,}",
        head_hash=found.head_hash,
        entries=f"{found.entries:,}",
        commitments=f"{found.commitments:,}",
        newer=_newer(about.event_seq - found.seq),
        problem_count=found.problem_count,
        problems=problems,
        more=f"{found.problem_count - len(problems):,}" if found.problem_count > len(problems) else "",
        is_unbound=found.is_unbound,
        is_moved=found.is_moved,
    )


def _newer(entries: int) -> str:
    return f"{entries:,} newer entr{'y' if entries == 1 else 'ies'} since." if entries > 0 else ""


def _problem(seq: int, kind: str, detail: str) -> ShownProblem:
    ids = find_ids(detail)
    return ShownProblem(
        kind=kind,
        meaning=KINDS.get(kind, ""),
        detail=show_invisible(detail),
        seq=seq,
        number=f"{seq:,}",
        id=ids[0] if ids else "",
    )


def _pace(entries: int, seconds: float) -> str:
    return f"{round(entries / seconds):,} entries a second" if entries >= MANY and seconds > 0.05 else ""


def _named(text: str) -> list[str]:
    """What a body names by itself, the closest first."""
    found = [(name, id) for name, id in _NAMED.findall(text) if is_id(id)]
    ranked = sorted(found, key=lambda one: _FIRST.index(one[0]) if one[0] in _FIRST else len(_FIRST))
    return list(dict.fromkeys(id for _, id in ranked))[:IDS_SHOWN]


def _line(line: EntryLine, ids: Iterable[str], about: Inspected, places: Mapping[str, int]) -> ShownLine:
    role = _ROLE.search(line.head) or _ROLE.search(line.tail)
    facts = dict.fromkeys(_FACTS.findall(line.head) + _FACTS.findall(line.tail))
    return ShownLine(
        seq=line.seq,
        number=f"{line.seq:,}",
        type=show_invisible(line.type),
        actor=actor_of(line.type, role[1] if role else ""),
        about=[_link(id, about, places) for id in ids if id != about.id],
        facts=list(facts)[:FACTS_SHOWN],
        at=line.at,
        hash=show_invisible(line.hash),
        prev_hash=show_invisible(line.prev_hash),
    )


def _link(id: str, about: Inspected, places: Mapping[str, int]) -> Link:
    return Link(id=show_invisible(id), address=_place_of(id, about, places) if is_id(id) else "")


def _place_of(id: str, about: Inspected, places: Mapping[str, int]) -> str:
    kind = id.partition("_")[0]
    if kind == "msg" and not about.is_own:
        return address_of("inspect-sightings", about.id, id)
    if kind in ("msg", "part"):
        seq = places.get(id)
        return f"{address_of('session', about.id)}?at={seq}#msg-{seq}" if seq and about.is_own else ""
    if kind in ("map", "file"):  # pages for whoever owns them
        return address_of({"map": "run", "file": "file"}[kind], id) if about.is_own else ""
    if kind in _PAGES:
        return address_of(_PAGES[kind], about.id, id)
    return address_of("inspect", id) if kind == "sess" else ""

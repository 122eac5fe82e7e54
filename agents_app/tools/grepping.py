"""The whole history searched, session after session upwards, and the hits grouped by what stands for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents_app.tools.family import Family, find, wanted_id
from compaction_app.queries import covering_summaries, load_summary
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import ToolPart
from sessions_app.queries import load_part
from sessions_app.search import Hit, Mode, Scope, SearchResult, search

LARGEST_PAGE = 50
MENTIONS = 10
"""Places that are told of an id which names nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page begins: in which of the sessions, and after what of it."""

    session: int = 0
    cursor: str | None = None

    def write(self) -> str:
        """The place as a cursor."""
        return f"{self.session}:{self.cursor or ''}"


def grep(family: Family, pattern: str, *, mode: Mode, summary_id: str, limit: int, cursor: str) -> str:
    """A page of hits as text.

    :raises InvalidRequest: the pattern or the cursor cannot be understood.
    :raises SummaryNotFoundError: there is no such summary in the family.
    """
    scopes = _scopes(family, summary_id)
    place = _read_place(cursor, len(scopes))
    found: list[tuple[str, SearchResult]] = []
    after: Place | None = place
    room = min(max(limit, 1), LARGEST_PAGE)
    while after is not None and room > 0:
        result = search(scopes[after.session], pattern, mode=mode, limit=room, cursor=after.cursor)
        found.append((str(scopes[after.session].session_id), result))
        room -= len(result.hits)
        after = _next_place(after, result, len(scopes))
    return _page(found, after, sessions=len(scopes), place=place)


def find_mentions(family: Family, id: str) -> list[Hit]:
    """Where a text that looks like an id was said; what a memory tool was asked about it does not count."""
    found: list[Hit] = []
    for session_id in family.searched:
        scope = Scope(owner_id=family.owner_id, session_id=session_id)
        try:
            found += search(scope, f'"{id}"', limit=LARGEST_PAGE).hits
        except InvalidRequest:  # there is no word in it
            return []
    return [hit for hit in found if not _is_asked(hit)][:MENTIONS]


def describe_hit(hit: Hit) -> str:
    """A hit as one line."""
    if hit.message_id is None:
        return f"- {hit.part_type} {hit.source_id} (messages {hit.message_seq} to {hit.last_seq}): {hit.snippet}"
    place = f"message {hit.message_seq} ({hit.message_id}, {hit.source_id}, {hit.role}, {hit.part_type})"
    return f"- {place}: {hit.snippet}"


def _is_asked(hit: Hit) -> bool:
    if hit.field != "tool_input":
        return False
    part = load_part(hit.source_id, session_id=hit.session_id).part
    return isinstance(part, ToolPart) and part.tool_name.startswith("lcm_")


def _scopes(family: Family, summary_id: str) -> list[Scope]:
    if not summary_id.strip():
        return [Scope(owner_id=family.owner_id, session_id=session_id) for session_id in family.searched]
    found = find(family, wanted_id(summary_id))
    summary = load_summary(found.id, session_id=found.session_id)
    scope = Scope(owner_id=family.owner_id, session_id=found.session_id)
    return [replace(scope, first_seq=summary.first_seq, last_seq=summary.last_seq)]


def _read_place(cursor: str, sessions: int) -> Place:
    session, _, rest = (cursor.strip() or "0:").partition(":")
    if not (session.isascii() and session.isdecimal() and len(session) < 4 and int(session) < sessions):
        raise InvalidRequest("cursor must be the one that the page before ended with", field="cursor")
    return Place(session=int(session), cursor=rest or None)


def _next_place(place: Place, result: SearchResult, sessions: int) -> Place | None:
    if result.next_cursor is not None:
        return replace(place, cursor=result.next_cursor)
    return Place(session=place.session + 1) if place.session + 1 < sessions else None


def _page(found: Sequence[tuple[str, SearchResult]], after: Place | None, *, sessions: int, place: Place) -> str:
    hits = sum(len(result.hits) for _, result in found)
    searched = sum(result.messages_searched for _, result in found)
    total = sum(result.messages_total for _, result in found)
    amount = f"{searched}" if searched == total else f"{searched} of {total}"
    above = f", in {len(found)} of {sessions} sessions (this one and those above it)" if sessions > 1 else ""
    more = f" There may be more: go on with cursor={after.write()}" if after else ""
    head = f"{hits} hits in {amount} messages searched{above}.{more}"
    return "\n".join(
        [head, *(line for id, result in found for line in _groups(id, result.hits, is_only=sessions == 1))]
    )


def _groups(session_id: str, hits: Sequence[Hit], *, is_only: bool) -> Iterator[str]:
    """The hits of a session under the summaries that stand for them, in the order of each one's best hit."""
    covering = covering_summaries(session_id, [hit.message_seq for hit in hits if hit.message_id])
    groups: dict[str, list[str]] = {}
    for hit in hits:
        groups.setdefault(_group(hit, covering), []).append(describe_hit(hit))
    where = "" if is_only else f" in session {session_id}"
    for group, lines in groups.items():
        yield f"{group}{where}:"
        yield from lines


def _group(hit: Hit, covering: Mapping[int, str]) -> str:
    if not hit.message_id:
        return "Summaries and files"
    summary_id = covering.get(hit.message_seq)
    return f"Summarised by {summary_id}" if summary_id else "Not summarised"

"""Passages: a hit with the messages before and after it, each as one line with its speaker and time."""

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mnesis_core.messages import PatchPart, ReasoningPart, RefusalPart, TextPart
from mnesis_core.search.ranking import GAP
from mnesis_core.search.words import readable
from mnesis_core.text import decode_text, excerpt, spaced_json
from sessions_app.database.tables import fetch, select_columns, time_of
from sessions_app.models import Message, Session
from sessions_app.search.filters import speakers_in
from sessions_app.search.index import CALLS, JSON_TOLD, TOLD
from sessions_app.search.search import Hit, Line

LONGEST_LINE = 240
"""The number of characters shown of a message beside a hit."""
READ = LONGEST_LINE + 1
"""The number of characters read of it: one more, which tells that the message goes on."""

_OF_MESSAGE = ("session_id", "seq", "created_at", "branch", "role", "id")
# A message is shown by what it says in words, or else by its first tool call.
_ORDER = (TextPart.type, RefusalPart.type, *CALLS, PatchPart.type, ReasoningPart.type)
_SHOWN = (*TOLD, *CALLS)
_LINES = f"""
    WITH w (session_id, seq) AS (VALUES {{places}})
    SELECT {{columns}}, p.part_type, p.tool_name, substr(p.content, 1, {READ}),
        substr(p.tool_input, 1, {READ}), substr(COALESCE(p.output, p.error_message, ''), 1, {READ})
    FROM w JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq
    LEFT JOIN message_parts p ON p.id = (
        SELECT q.id FROM message_parts q WHERE q.message_id = m.id AND q.part_type IN {_SHOWN!r}
        ORDER BY CASE q.part_type {" ".join(f"WHEN '{kind}' THEN {at}" for at, kind in enumerate(_ORDER))} ELSE 9 END,
            q.part_index LIMIT 1
    )"""


class _Told(NamedTuple):
    branch: int
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Messages that stand together around one hit or several."""

    hits: tuple[Hit, ...]
    """The hits of the passage, the best first."""
    lines: tuple[Line, ...]
    """The messages in order; empty for a hit that is no message."""


def with_passages(
    hits: Collection[Hit],
    texts: Mapping[tuple[str, str], str],
    *,
    around: int,
    speakers: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Hit]:
    """Return hits with what is around them. A message that is around several is told with the first of them only.

    :param texts: how a hit's own line is shown, by its row and field, where that is not its snippet
    :param speakers: what ``speakers_of`` returns for their sessions, where the caller has read it
    """
    said = {(hit.session_id, hit.message_seq) for hit in hits if hit.message_id}
    places = {(session, seq + step) for session, seq in said for step in range(-around, around + 1)}
    told = _told(places, speakers or speakers_of({session for session, _ in said}))
    known: set[tuple[str, int]] = set()
    found = []
    for hit in hits:
        own = told.get((hit.session_id, hit.message_seq)) if hit.message_id else None
        beside = [] if own is None else list(_beside(own, hit.session_id, told, around))
        lines = [line for line in beside if line.text and (hit.session_id, line.seq) not in known]
        if own is not None:
            lines.append(replace(own.line, text=texts.get((hit.source_id, hit.field), hit.snippet), is_hit=True))
        known.update((hit.session_id, line.seq) for line in lines)
        found.append(replace(hit, passage=tuple(sorted(lines, key=lambda line: line.seq))))
    return found


def _beside(own: _Told, session_id: str, told: Mapping[tuple[str, int], _Told], around: int) -> Iterator[Line]:
    for seq in range(own.line.seq - around, own.line.seq + around + 1):
        other = told.get((session_id, seq))
        if other is None or seq == own.line.seq or other.branch != own.branch:
            continue
        if abs(other.line.said_at - own.line.said_at) <= GAP:
            yield other.line


def merged(hits: Collection[Hit], *, around: int) -> list[Passage]:
    """Return the passages of hits, those that touch as one, in the order of their best hits.

    :param around: the number that ``with_passages`` was given for these hits
    """
    groups: list[list[Hit]] = []
    for hit in hits:
        near = [group for group in groups if any(_touch(hit, other, around) for other in group)]
        whole = [*(one for group in near for one in group), hit]
        if near:
            near[0][:] = whole
            groups = [group for group in groups if not any(group is other for other in near[1:])]
        else:
            groups.append(whole)
    return [Passage(hits=tuple(group), lines=tuple(_lines(group))) for group in groups]


def _touch(one: Hit, other: Hit, around: int) -> bool:
    if not (one.message_id and other.message_id) or (one.session_id, one.branch) != (other.session_id, other.branch):
        return False
    if abs(one.message_seq - other.message_seq) > 2 * around + 1:
        return False
    times = [line.said_at for hit in (one, other) for line in hit.passage if line.is_hit]
    return len(times) == 2 and abs(times[0] - times[1]) <= GAP


def _lines(hits: Collection[Hit]) -> list[Line]:
    """Return the lines of hits in order, each message once, as the hit that it is if it is one."""
    lines: dict[int, Line] = {}
    for line in (line for hit in hits for line in hit.passage):
        if line.is_hit or line.seq not in lines:
            lines[line.seq] = line
    return [lines[seq] for seq in sorted(lines)]


def _told(places: Collection[tuple[str, int]], names: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, int], _Told]:
    if not places:
        return {}
    pairs = ", ".join(["(%s, %s)"] * len(places))
    statement = _LINES.format(places=pairs, columns=select_columns(Message, "m", _OF_MESSAGE))
    return {
        (session_id, seq): _Told(
            branch,
            Line(
                message_id=id,
                seq=seq,
                role=role,
                speaker=names.get(session_id, {}).get(role, ""),
                tool_name=readable(decode_text(tool_name or "")),
                said_at=time_of(at),
                text=_text(kind, content, tool_input, output),
                is_hit=False,
            ),
        )
        for session_id, seq, at, branch, role, id, kind, tool_name, content, tool_input, output in fetch(
            statement, [value for place in places for value in place]
        )
    }


def _text(kind: str | None, content: str | None, tool_input: str | None, output: str | None) -> str:
    if kind is None:
        return ""
    text = f"{tool_input} {output}" if kind in CALLS else content or ""
    text = decode_text(text)
    return excerpt(readable(spaced_json(text) if kind in JSON_TOLD else text), LONGEST_LINE)


def speakers_of(sessions: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return by session the name of who speaks in each role, where its labels tell it."""
    labels = Session.objects.filter(id__in=list(sessions)).values_list("id", "labels")
    return {id: speakers_in(of) for id, of in labels}

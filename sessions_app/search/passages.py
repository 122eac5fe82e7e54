"""What stands around a hit: the messages before and after it, with who said them and when, each as one line."""

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
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
"""Characters of a message beside a hit that are shown."""
READ = LONGEST_LINE + 1
"""Characters of it that are read: one more tells that there is more."""

_OF_MESSAGE = ("session_id", "seq", "created_at", "branch", "role", "id")
# What was said in words stands for a message, else its first call of a tool.
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


def with_passages(hits: Collection[Hit], texts: Mapping[tuple[str, str], str], *, around: int) -> list[Hit]:
    """Return hits with what is around them.

    :param texts: how a hit's own line is shown, by its row and field, where that is not its snippet
    """
    said = {(hit.session_id, hit.message_seq) for hit in hits if hit.message_id}
    places = {(session, seq + step) for session, seq in said for step in range(-around, around + 1)}
    told = _told(places, speakers_of({session for session, _ in said}))
    return [replace(hit, passage=_passage(hit, texts, told, around)) for hit in hits]


def _passage(
    hit: Hit, texts: Mapping[tuple[str, str], str], told: Mapping[tuple[str, int], _Told], around: int
) -> tuple[Line, ...]:
    own = told.get((hit.session_id, hit.message_seq)) if hit.message_id else None
    if own is None:
        return ()
    text = texts.get((hit.source_id, hit.field), hit.snippet)
    lines = []
    for seq in range(hit.message_seq - around, hit.message_seq + around + 1):
        beside = told.get((hit.session_id, seq))
        if seq == hit.message_seq:
            lines.append(replace(own.line, text=text, is_hit=True))
        elif beside and beside.branch == own.branch and abs(beside.line.said_at - own.line.said_at) <= GAP:
            lines.append(beside.line)
    return tuple(line for line in lines if line.text)


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

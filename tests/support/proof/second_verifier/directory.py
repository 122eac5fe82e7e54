"""Section 12: the directory of a site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.proof.second_verifier.ledger import follows
from tests.support.proof.second_verifier.values import GENESIS, Problem, Row, Session, Strange, time_text


def problems_of_directory(
    entries: Sequence[Row], sessions: Mapping[str, Session], *, organisations: Sequence[Row] = ()
) -> list[Problem]:
    """Return what is wrong with the directory, and how it differs from the sessions of its site.

    :param organisations: those of the site, each with ``id`` and ``slug``, if they are known
    """
    sites_own = next((one["id"] for one in organisations if one["slug"] == "default"), "")
    entries = sorted(entries, key=lambda entry: entry["seq"])
    found = []
    seq, hash = 0, GENESIS
    for entry in entries:
        if not follows(seq, hash, entry):
            found.append(Problem("", entry["seq"], "chain", "directory_entries"))
        seq, hash = entry["seq"], entry["hash"]
    last = {entry["session_id"]: entry["entries"] for entry in entries}
    found += [Problem(id, count, "missing", f"sessions {id}") for id, count in last.items() if id not in sessions]
    for id, session in sessions.items():
        of_it = [entry for entry in entries if entry["session_id"] == id]
        found += [Problem(id, *problem) for problem in _differences(session, of_it, sites_own)]
    return found


def _differences(session: Session, entries: Sequence[Row], sites_own: str) -> Iterator[tuple[int, str, str]]:
    hashes = {entry["seq"]: entry["hash"] for entry in session.rows("events")}
    body: Any = {}
    for entry in entries:
        body = _body(entry)
        if not follows(entry["seq"] - 1, entry["prev_hash"], entry):
            yield 0, "chain", "directory_entries"
        elif not _agrees(body, entry):
            yield 0, "row", f"directory_entries {entry['seq']}"
        elif hashes.get(entry["entries"]) != body.get("head"):
            yield entry["entries"], "head", ""
    if not entries:
        yield 0, "unexplained", f"sessions {session.id}"
    elif not _belongs(body, session.row, sites_own):
        yield 0, "owner", f"sessions {session.id}"


def _belongs(body: Mapping[str, Any], row: Row, sites_own: str) -> bool:
    organisation = row.get("organisation_id")
    said = (body.get("owner_id"), body.get("organisation", sites_own or organisation))
    return said == (row["owner_id"], organisation)


def _body(entry: Row) -> dict[str, Any]:
    try:
        body = json.loads(entry["body"])
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _agrees(body: Mapping[str, Any], entry: Row) -> bool:
    try:
        at = time_text(entry["created_at"])
    except Strange:
        return False
    said = (body.get("session_id"), body.get("entries"), body.get("at"))
    return said == (entry["session_id"], entry["entries"], at)

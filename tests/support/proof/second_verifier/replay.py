"""Section 9: what the bodies of a ledger come to, and what the rows say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.proof.second_verifier.values import Row, Session

State = dict[str, Any]
TURN_ENDS = ("completed", "cancelled", "interrupted", "failed", "incomplete")
CALL_WORDS = {"call_ids": "running", "calls_completed": "completed", "calls_failed": "failed"}
ITEM_ENDS = ("completed", "failed", "cancelled")


class Nothing(Exception):
    """A body that says nothing."""


def apply(state: State, seq: int, type: str, body: Row) -> None:
    """Apply one entry, or raise ``Nothing`` and leave the state as it is."""
    if type in STEPS:
        for name, key, value in list(STEPS[type](state, seq, body)):
            if key is None:
                state[name] = value
            else:
                state.setdefault(name, {})[key] = value


Changes = Iterator[tuple[str, Any, Any]]
"""What is set: the name of a result, a key (None for a counter) and the value."""


def _get(body: Any, name: str, kind: type) -> Any:
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Nothing
    return value


def _ids(body: Row, name: str) -> list[str]:
    ids = _get(body, name, list)
    if not all(isinstance(id, str) for id in ids):
        raise Nothing
    return list(ids)


def _turn_started(state: State, seq: int, body: Row) -> Changes:
    yield "turn_seq", None, _get(body, "turn_seq", int)
    yield "turns", _get(body, "turn_id", str), "running"


def _message_created(state: State, seq: int, body: Row) -> Changes:
    place = _get(body, "message_seq", int)
    yield "message_seq", None, place
    yield "items", _get(body, "message_id", str), ("message", place, seq, None, _branch(body))
    for part in _get(body, "parts", list):
        yield from _part(state, seq, part)
    if "call_id" in body:
        yield "calls", _get(body, "call_id", str), "running"


def _message_finalized(state: State, seq: int, body: Row) -> Changes:
    if "call_id" in body:
        if "error_code" not in body:
            raise Nothing
        yield "calls", _get(body, "call_id", str), "completed" if body["error_code"] is None else "failed"


def _branch(body: Row) -> int:
    return _get(body, "branch", int) if "branch" in body else 0


def _branch_created(state: State, seq: int, body: Row) -> Changes:
    yield "branches", _get(body, "branch", int), (_get(body, "parent", int), _get(body, "after_seq", int))


def _branch_chosen(state: State, seq: int, body: Row) -> Changes:
    yield "branch", None, _get(body, "branch", int)


def _part(state: State, seq: int, body: Any) -> Changes:
    if not isinstance(body, dict):
        raise Nothing
    if "state" in body:
        yield "tools", _get(body, "part_id", str), _get(body, "state", str)


def _part_compacted(state: State, seq: int, body: Row) -> Changes:
    yield from (("tombstones", id, seq) for id in _ids(body, "part_ids"))


def _context_changed(state: State, seq: int, body: Row) -> Changes:
    for id in _ids(body, "removed"):
        *item, removed, branch = state.get("items", {}).get(id, ("", 0, 0, None, 0))
        yield "items", id, (*item, seq if removed is None else removed, branch)
    place = (_get(body, "position", int), seq, None, _branch(body))
    yield from (("items", id, ("summary", *place)) for id in _ids(body, "added"))


def _summary_created(state: State, seq: int, body: Row) -> Changes:
    kind = "message" if _get(body, "kind", str) == "leaf" else "summary"
    id = _get(body, "summary_id", str)
    yield "summaries", id, [(kind, source) for source in _ids(body, "source_ids")]
    yield "freshness", id, "fresh"


def _summary_superseded(state: State, seq: int, body: Row) -> Changes:
    yield "superseded", _get(body, "summary_id", str), seq


def _freshness(state: State, seq: int, body: Row) -> Changes:
    for word in ("stale", "fresh"):
        yield from (("freshness", id, word) for id in _ids(body, word))


def _fact_held(state: State, seq: int, body: Row) -> Changes:
    held_for = _get(body, "held_for", str)
    yield "held", _get(body, "fact_id", str), None if held_for == "session" else (held_for, seq)


def _map(state: State, seq: int, body: Row) -> Changes:
    run_id = _get(body, "run_id", str)
    if "state" in body:
        yield "maps", run_id, _get(body, "state", str)
    for word in (*ITEM_ENDS, "again"):
        for number in _numbers(_get(body, word, list) if word in body else []):
            yield "map_items", (run_id, number), None if word == "again" else word
    if "session_ids" in body:
        items, sessions = _get(body, "items", list), _ids(body, "session_ids")
        if len(items) != len(sessions):
            raise Nothing
        yield from (("map_children", (run_id, number), id) for number, id in zip(items, sessions, strict=True))
    for word, value in CALL_WORDS.items():
        yield from (("calls", id, value) for id in (_ids(body, word) if word in body else []))


def _numbers(stretches: list[Any]) -> Iterator[int]:
    for stretch in stretches:
        ends = stretch if isinstance(stretch, list) else [stretch, stretch]
        if len(ends) != 2 or not all(type(end) is int for end in ends):
            raise Nothing
        yield from range(ends[0], ends[1] + 1)


def _to(name: str, key: str, value: str) -> Callable[[State, int, Row], Changes]:
    def step(state: State, seq: int, body: Row) -> Changes:
        yield name, _get(body, key, str), value

    return step


STEPS: dict[str, Callable[[State, int, Row], Changes]] = {
    "branch.created": _branch_created,
    "branch.chosen": _branch_chosen,
    "turn.started": _turn_started,
    "turn.suspended": _to("turns", "turn_id", "suspended"),
    "turn.resumed": _to("turns", "turn_id", "running"),
    **{f"turn.{end}": _to("turns", "turn_id", end) for end in TURN_ENDS},
    "message.created": _message_created,
    "message.finalized": _message_finalized,
    "part.created": _part,
    "part.state_changed": _part,
    "part.compacted": _part_compacted,
    "call.started": _to("calls", "call_id", "running"),
    "call.completed": _to("calls", "call_id", "completed"),
    "call.failed": _to("calls", "call_id", "failed"),
    "context.changed": _context_changed,
    "compaction.requested": _to("runs", "run_id", "queued"),
    "compaction.started": _to("runs", "run_id", "running"),
    "compaction.completed": _to("runs", "run_id", "completed"),
    "compaction.failed": _to("runs", "run_id", "failed"),
    "compaction.superseded": _to("runs", "run_id", "superseded"),
    "fact.created": _to("facts", "fact_id", "live"),
    "fact.superseded": _to("facts", "fact_id", "superseded"),
    "fact.withdrawn": _to("facts", "fact_id", "withdrawn"),
    "fact.forbidden": _to("facts", "fact_id", "forbidden"),
    "fact.allowed": _to("facts", "fact_id", "withdrawn"),
    "fact.held": _fact_held,
    "reflection.requested": _to("reflections", "reflection_id", "queued"),
    "reflection.completed": _to("reflections", "reflection_id", "completed"),
    "reflection.failed": _to("reflections", "reflection_id", "failed"),
    "summary.created": _summary_created,
    "summary.superseded": _summary_superseded,
    "summary.freshness_changed": _freshness,
    "map.started": _to("maps", "run_id", "pending"),
    "map.completed": _to("maps", "run_id", "completed"),
    "map.state_changed": _map,
    "map.items_claimed": _map,
    "map.item_completed": _map,
    "map.items_released": _map,
}


def replay_problems(state: State, session: Session) -> Iterator[str]:
    """Yield the subject of each difference between the result and the rows."""
    for name, rows in _rows(session).items():
        if not isinstance(rows, dict):
            if state.get(name, 0) != rows:
                yield name
            continue
        replayed = state.get(name, {})
        for key in replayed.keys() | rows.keys():
            if replayed.get(key) != rows.get(key):
                yield f"{name} {' '.join(map(str, key)) if isinstance(key, tuple) else key}"


def _rows(session: Session) -> dict[str, Any]:
    def values(table: str, column: str, key: str = "id") -> dict[str, Any]:
        return {row[key]: row[column] for row in session.rows(table) if row[column] is not None}

    items = session.rows("operator_items")
    return {
        "message_seq": session.row["message_seq"],
        "turn_seq": session.row["turn_seq"],
        "branch": session.row.get("branch", 0),
        "branches": {row["number"]: (row["parent"], row["after_seq"]) for row in session.rows("branches")},
        "items": {
            row["item_id"]: (
                *(row["item_type"], row["position"], row["added_seq"], row["removed_seq"]),
                row.get("branch", 0),
            )
            for row in session.rows("context_items")
        },
        "turns": values("turns", "state"),
        "calls": values("model_calls", "state"),
        "tools": values("message_parts", "tool_state"),
        "tombstones": values("message_parts", "compacted_seq"),
        "runs": values("compaction_runs", "state"),
        "summaries": {row["id"]: _sources(session, row) for row in session.rows("summary_nodes")},
        "superseded": values("summary_nodes", "superseded_seq"),
        "freshness": values("summary_nodes", "freshness"),
        "maps": values("operator_runs", "state"),
        "map_items": {(row["run_id"], row["number"]): row["state"] for row in items if row["state"] in ITEM_ENDS},
        "map_children": {
            (row["run_id"], row["number"]): row["child_session_id"] for row in items if row["child_session_id"]
        },
        "reflections": values("reflections", "state"),
        "facts": {row["id"]: _fact_state(row) for row in session.rows("facts")},
        "held": {
            row["id"]: (row.get("held_for", "session"), row.get("held_seq"))
            for row in session.rows("facts")
            if row.get("held_for", "session") != "session" or row.get("held_seq") is not None
        },
    }


def _fact_state(row: Row) -> str:
    if row.get("ban", "") != "":
        return str(row["ban"])
    if row.get("withdrawn_seq") is not None:
        return "withdrawn"
    return "live" if row.get("superseded_seq") is None else "superseded"


def _sources(session: Session, node: Row) -> Any:
    edges = [edge for edge in session.rows("summary_edges") if edge["node_id"] == node["id"]]
    edges.sort(key=lambda edge: str(edge["position"]).zfill(20))
    is_revision = node["revises_id"] is not None
    for place, edge in enumerate(edges):
        said = edge.get("session_id") or session.id
        if (edge["position"], edge["of_revision"], said) != (place, is_revision, session.id):
            return "not in order"
    return [(edge["source_type"], edge["source_id"]) for edge in edges]

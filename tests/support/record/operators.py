"""Runs of operators, written through the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents_app import store
from agents_app.queries import load_items
from files_app.contents import put_content
from files_app.store import store_file_reference
from mnesis_core.maps.values import (
    AttemptOutcome,
    ErrorKind,
    ItemRecord,
    ItemState,
    NewItem,
    OperatorKind,
    OperatorSpec,
    RunState,
    Settlement,
)
from mnesis_core.records import MessageEnd, NewCall, UsageRecord
from sessions_app.record.change import Change, change

PAID = UsageRecord(tokens_input=30, tokens_output=12, usage_source="provider", cost_micros=7)
SCHEMA = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "string"}}, "required": ["z"]}
WORKER = "worker-1"


def add_run(
    session_id: str,
    *,
    items: int = 3,
    kind: OperatorKind = OperatorKind.LLM,
    begun: bool = True,
    idempotency_key: str | None = None,
    path: str = "/lines.jsonl",
    lines: Sequence[str] = (),
    part_id: str = "",
    **spec: Any,
) -> str:
    """A run over these lines, or over so many of ten bytes each; returns its id."""
    data = [f"{line}\n".encode() for line in lines or [f'"{number:07}"' for number in range(1, items + 1)]]
    new, offset = [], 0
    for number, line in enumerate(data, 1):
        new.append(NewItem(number=number, offset=offset, length=len(line) - 1))
        offset += len(line)
    with change(session_id) as record:
        file_id = store_file_reference(record, content_id=put_content(b"".join(data)), path=path, size=offset)
        chosen = OperatorSpec(**{"template": "Say {{ item }}", "schema": SCHEMA, "model": "demo"} | spec)
        asked = {"idempotency_key": idempotency_key, "part_id": part_id}
        run_id = store.start_run(record, kind=kind, spec=chosen, input_file_id=file_id, **asked)
        store.add_items(record, run_id, new)
        if begun:
            store.begin_run(record, run_id, items=len(new))
    return run_id


def claim(
    session_id: str,
    run_id: str,
    *,
    worker: str = WORKER,
    limit: int = 10,
    lease_seconds: float = 30,
    digest_of: Callable[[ItemRecord], str] = lambda item: "ab" * 32,
    manifest: list[Any] | None = None,
) -> list[ItemRecord]:
    """Claim items and write the calls for them; returns the items as they are then."""
    with change(session_id) as record:
        items = store.claim_items(record, run_id, worker=worker, limit=limit, lease_seconds=lease_seconds)
        if items:
            calls = {item.number: new_call(run_id, item, digest_of(item), manifest) for item in items}
            store.start_map_calls(record, run_id, calls)
    return load_items(run_id, [item.number for item in items])


def new_call(run_id: str, item: ItemRecord, digest: str, manifest: list[Any] | None = None) -> NewCall:
    """A question for an item."""
    named = [{"kind": "map", "run_id": run_id, "item": item.number, "attempt": item.attempts}]
    return NewCall(
        purpose="map",
        model="demo",
        provider_model="demo/chat",
        parameters={"most_tokens": 100, "most_micros": 9},
        manifest=named if manifest is None else manifest,
        digest=digest,
        estimated_tokens=7,
    )


def accept(item: ItemRecord, output: str = '{"z": 1}') -> Settlement:
    """The result of an item."""
    return Settlement(item=item.number, number=item.attempts, state=ItemState.COMPLETED, attempt=attempt(item, output))


def refuse(item: ItemRecord, state: ItemState = ItemState.FAILED, output: str = "no JSON", **more: Any) -> Settlement:
    """A reply to an item that is no result."""
    return Settlement(
        item=item.number,
        number=item.attempts,
        state=state,
        attempt=attempt(item, output),
        error_kind=ErrorKind.VALIDATION,
        error="this is no JSON",
        **more,
    )


def attempt(item: ItemRecord, output: str) -> AttemptOutcome:
    """What a model said to an item."""
    end = MessageEnd(outcome="complete", finish_reason="stop", usage=PAID)
    return AttemptOutcome(output=output, usage=PAID, duration_ms=5, call_id=item.call_id or None, call_end=end)


def settle(session_id: str, run_id: str, settled: Sequence[Settlement], *, worker: str = WORKER) -> set[int]:
    """Write what came of items."""
    with change(session_id) as record:
        return store.settle_items(record, run_id, worker=worker, settled=settled)


def finish(session_id: str, run_id: str, *, output: str = "/out.jsonl") -> str:
    """End a run with an output file; returns the file's id."""

    def end(record: Change) -> str:
        file_id = store_file_reference(record, content_id=put_content(b"{}\n"), path=output, size=3)
        store.finish_run(record, run_id, output_file_id=file_id)
        return file_id

    with change(session_id) as record:
        return end(record)


def settled_run(session_id: str, *, output: str = '{"z": 1}', **values: Any) -> str:
    """A run that has ended: its first item has a result, its second failed, its third took two tries; returns its id."""
    run_id = add_run(session_id, **values)
    first, second, third = claim(session_id, run_id)
    waiting = refuse(third, ItemState.PENDING, output)
    settle(session_id, run_id, [accept(first, output), refuse(second, output=output), waiting])
    settle(session_id, run_id, [accept(item, output) for item in claim(session_id, run_id)])
    finish(session_id, run_id)
    return run_id


def paused_run(session_id: str) -> str:
    """A run with one result and a call that nobody finished, paused by a person; returns its id."""
    run_id = add_run(session_id)
    first, _ = claim(session_id, run_id, limit=2)
    settle(session_id, run_id, [accept(first)])
    with change(session_id) as record:
        store.set_run_state(record, run_id, RunState.PAUSED, reason="person")
    return run_id


def tried(session_id: str, **values: object) -> str:
    """A run of three items: one completed, one failed, one in flight."""
    run_id = add_run(session_id, **values)
    first, second, _ = claim(session_id, run_id)
    settle(session_id, run_id, [accept(first), refuse(second)])
    return run_id

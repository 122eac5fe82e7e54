"""A small session with one of everything that the inspector shows, written through the stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from compaction_app import store as compaction_store
from compaction_app.store import Revision
from mnesis_core.compaction.requests import Attempt
from mnesis_core.llm.interface import Source, Usage
from mnesis_core.messages import Message, Part, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, NewSummary, TurnState, UsageRecord, new_id
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change

USAGE = UsageRecord(tokens_input=1200, tokens_output=88, usage_source="provider", cost_micros=1234)
ORIGINAL = "tide table: 03:10 high, 09:25 low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A compaction that this test works on."""

    id: str
    fence: int


def add_session(owner: User, title: str = "Harbour survey") -> str:
    """An empty session."""
    return session_store.create_session(
        owner=owner, model="demo", title=title, system_prompt="Be careful.", labels={"a": "b"}
    )


def add_turn(session_id: str, user: str, *parts: Part) -> list[str]:
    """A finished turn with a call; returns the ids of its two messages."""
    with change(session_id) as record:
        turn = turn_store.start_turn(record, model="demo")
        question = Message(role="user", parts=(TextPart(text=user),))
        first = message_store.append_message(record, turn_id=turn, message=question)
        call = turn_store.start_call(
            record,
            turn_id=turn,
            message_id=None,
            model="demo",
            provider_model="demo/chat",
            parameters={"max_tokens": 9},
            manifest=[{"id": first}],
            context_seq=1,
            digest="ab" * 32,
            estimated_tokens=7,
            texts={"tools": "[]"},
        )
        end = MessageEnd(model="demo-1", finish_reason="stop", outcome="complete", usage=USAGE)
        answer = Message(role="assistant", parts=parts or (TextPart(text="Noted."),))
        second = message_store.append_message(record, turn_id=turn, message=answer, end=end)
        turn_store.finish_call(record, call, end)
        turn_store.finish_turn(record, turn, state=TurnState.COMPLETED, usage=USAGE)
    return [first, second]


def tool_part(output: str = ORIGINAL, *, call_id: str = "c1", input: str = '{"port": "north"}') -> ToolPart:
    """A tool call that was answered."""
    return ToolPart(tool_name="read_log", tool_call_id=call_id, input=input, output=output, state=ToolState.COMPLETED)


def claim(session_id: str) -> Claimed:
    """A compaction, queued and claimed."""
    with change(session_id) as record:
        run = compaction_store.request_run(record, trigger="soft")
    assert run is not None
    with change(session_id) as record:
        fence = compaction_store.claim_run(record, run, lease_owner="test", lease_seconds=60, tokens_before=6200)
    assert fence is not None
    return Claimed(id=run, fence=fence)


def new_summary(**values: Any) -> NewSummary:
    """A leaf of the first messages that waits for its commit, but for the values given."""
    usual = {
        "kind": "leaf",
        "depth": 0,
        "level": 1,
        "text": "They spoke of tides.",
        "token_count": 120,
        "source_tokens": 900,
        "first_seq": 1,
        "last_seq": 2,
        "message_count": 2,
        "model": "demo",
        "prompt_version": "1",
        "tokens_input": 900,
        "tokens_output": 120,
        "cost_micros": 42,
        "duration_ms": 840,
    }
    return NewSummary(**{"id": new_id("sum"), **usual, **values})


def add_summary(
    session_id: str,
    run: Claimed,
    source_ids: Sequence[str],
    span: tuple[int, int],
    *,
    kind: str = "leaf",
    level: int = 1,
    text: str = "They spoke of tides.",
    count: int | None = None,
    branch: int = 0,
) -> str:
    """A summary in place of its sources in the context of a branch; returns its id."""
    summary_id = new_id("sum")
    add_try(session_id, run, summary_id, kind=kind, level=level, text=text)
    summary = new_summary(
        id=summary_id,
        kind=kind,
        depth=0 if kind == "leaf" else 1,
        level=level,
        text=text,
        first_seq=span[0],
        last_seq=span[1],
        message_count=span[1] - span[0] + 1 if count is None else count,
    )
    source_type = "message" if kind == "leaf" else "summary"
    with change(session_id) as record:
        return compaction_store.record_summary(
            record,
            run.id,
            summary,
            fence=run.fence,
            source_type=source_type,
            source_ids=list(source_ids),
            branch=branch,
        )


def add_preview(session_id: str, summary_id: str, source_ids: Sequence[str], *, text: str = "Tides, again.") -> str:
    """What a summary would say in a revision; returns the preview's id."""
    preview = _revision(summary_id, source_ids, text)
    with change(session_id) as record:
        compaction_store.record_preview(record, preview, batch_id=preview.id)
    return preview.id


def revise(session_id: str, summary_id: str, source_ids: Sequence[str], *, text: str = "Tides, once more.") -> str:
    """A summary in another one's place; returns its id."""
    revision = _revision(summary_id, source_ids, text)
    with change(session_id) as record:
        compaction_store.revise_summaries(record, [revision])
    return revision.id


def _revision(summary_id: str, source_ids: Sequence[str], text: str) -> Revision:
    return Revision(
        id=new_id("sum"),
        summary_id=summary_id,
        source_ids=tuple(source_ids),
        level=1,
        text=text,
        token_count=9,
        source_tokens=900,
        model="demo",
        prompt_version="custom.1",
        tokens_input=900,
        tokens_output=9,
        cost_micros=5,
        duration_ms=40,
    )


def add_try(
    session_id: str,
    run: Claimed,
    summary_id: str,
    *,
    kind: str = "leaf",
    level: int = 1,
    text: str = "",
    reason: str = "",
    cost: int = 42,
    call_id: str | None = None,
) -> str:
    """An attempt at a summary, accepted unless there is a reason why not; returns its id."""
    usage = Usage(input_tokens=900, output_tokens=120, source=Source.PROVIDER)
    attempt = Attempt(level=level, accepted=not reason, reason=reason, usage=usage)
    with change(session_id) as record:
        return compaction_store.record_attempt(
            record,
            attempt,
            run_id=run.id,
            summary_id=summary_id,
            kind=kind,
            call_id=call_id,
            target_tokens=200,
            prompt_version="level1.2",
            text=text,
            cost_micros=cost,
        )


def finish(session_id: str, run: Claimed) -> None:
    """The compaction ends well."""
    with change(session_id) as record:
        compaction_store.finish_run(record, run.id, outcome="target_met", tokens_after=2100, fence=run.fence)


def page_of(row: Model, kind: str = "change") -> str:
    """The address of a row's page."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{kind}", args=[quote(row.pk)])


def list_of(model: type[Model], kind: str = "changelist") -> str:
    """The address of a list."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}")


def shown(inspector: Client, url: str) -> str:
    """A page that must be there."""
    answer = inspector.get(url)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


class _Texts(HTMLParser):
    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag
        self.found: list[str] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == self.tag:
            self.depth += 1
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self.tag:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.found[-1] += data


def texts_in(page: str, tag: str) -> list[str]:
    """What a browser would show inside every element of this name, character by character."""
    parser = _Texts(tag)
    parser.feed(page)
    # A line break right after <pre> is not part of the text (HTML, "The pre element").
    return [text.removeprefix("\n") if tag == "pre" else text for text in parser.found]

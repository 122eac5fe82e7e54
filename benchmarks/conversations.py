"""Real conversations replayed turn by turn in small windows: what compaction does, and whether everything is still there.

The demo model writes the summaries, so this does not measure their quality.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from django.contrib.auth.models import User

from audit_app.evaluation.work import Life, live
from compaction_app.context.fidelity import items_of_summary
from compaction_app.context.state import build_context, load_meter, load_state
from compaction_app.queries import list_runs, list_summaries
from files_app.queries import read_range
from mnesis_core.compaction.fidelity import Shown
from mnesis_core.compaction.fidelity import measure as measure_items
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.context.fitting import whole
from mnesis_core.files.references import files_in_footer, read_file_manifest
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import StoredMessage, ToolPart
from mnesis_core.records import RunRecord, SummaryRecord
from sessions_app.llm import model_store
from sessions_app.record import session_store
from sessions_app.record.context_queries import load_context_items
from sessions_app.record.message_queries import load_messages
from tests.support.material.samples import FOLDER, Sample, read_samples

WINDOWS = {"4K": 4_096, "8K": 8_192, "12K": 12_288, "32K": 32_768, "128K": 131_072}
"""Tokens, by the alias of the model that has them."""
LONGEST_ANSWER = 4_096
LARGEST_MANIFEST = 2**20
"""Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivedPrompt:
    """The prompt before one of the answers."""

    used: float
    """Share of usable."""
    absent: int
    """Messages that neither it nor a summary in it shows."""
    has_question: bool
    """The user's message of the turn is there, uncut."""
    is_compacted: bool
    """A summary or a tombstone is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one conversation in one window. All sizes are in tokens."""

    said: int
    """Tokens of the whole conversation in a context."""
    soft: int
    """The soft threshold: from it on a compaction is requested."""
    at_the_end: int
    """Tokens of the context after the last turn."""
    runs: list[RunRecord]
    summaries: list[SummaryRecord]
    reached: list[tuple[str, int]]
    """Pairs of message id and number of expansions, in the order of expanding the whole context."""
    originals: list[str]
    """Every message id, in order."""
    files: int
    files_named: int
    """How many of them are named by the payload of the next call, or by a file list that it names."""
    prompts: list[LivedPrompt]
    evidence: list[int]
    """Number of expansions needed for each piece of evidence that can be reached."""

    @property
    def needless(self) -> list[RunRecord]:
        """Return the compactions that ran below the soft threshold or changed nothing."""
        return [run for run in self.runs if (run.tokens_before or 0) < self.soft or not _changed(run)]


def _changed(run: RunRecord) -> bool:
    return bool(run.summary_ids or run.pruned_parts)


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table; none if there are no sample files."""
    try:
        samples = read_samples()
    except FileNotFoundError:
        print(f"left out: no sample files in {FOLDER}; MNESIS_SAMPLES names another folder", file=sys.stderr)
        return []
    owner = User.objects.create_user("benchmark")
    put_models()
    return [_row(sample, alias, live_in(owner, sample, alias)) for sample in samples for alias in WINDOWS]


def put_models() -> None:
    """Save a model for each window."""
    for alias, window in WINDOWS.items():
        model_store.put_model(
            ModelSpec(alias=alias, litellm_model="demo/chat", context_window=window, max_output_tokens=LONGEST_ANSWER)
        )


def live_in(owner: User, sample: Sample, alias: str) -> Outcome:
    """Replay a conversation with the model of this alias, and return the outcome."""
    session_id = session_store.create_session(owner=owner, model=alias)
    turns = len(sample.transcript.turns)

    def progress(done: int) -> None:
        if done == turns or done % 50 == 0:
            print(f"{sample.name}, {alias}: {done} of {turns} turns", file=sys.stderr, flush=True)

    prompts: list[LivedPrompt] = []
    life = live(
        session_id, sample.transcript, progress, lambda id, question: prompts.append(_look_at_prompt(id, question))
    )
    return look_at(life, prompts, sample.evidence)


def _look_at_prompt(session_id: str, question: str) -> LivedPrompt:
    context = build_context(session_id)
    built = context.assembled
    rows = [row for row in built.manifest if row["kind"] in ("message", "pinned") and row["id"] == question]
    return LivedPrompt(
        used=built.used_tokens / context.budget.usable,
        absent=sum(row["messages"] for row in built.manifest if row["kind"] == "gap"),
        has_question=not question or any(not row["shortened"] and not row["omitted"] for row in rows),
        is_compacted=any(row["kind"] == "summary" or row.get("tombstoned") for row in built.manifest),
    )


def look_at(life: Life, prompts: list[LivedPrompt], evidence: Sequence[str] = ()) -> Outcome:
    session_id = life.session_id
    built = build_context(session_id)
    named = json.dumps(built.payload) + "".join(_manifests(session_id))
    messages = load_messages(session_id, limit=1_000_000)
    summaries = list_summaries(session_id)
    reached = list(_expanded(session_id, {summary.id: summary for summary in summaries}))
    steps = dict(reached)
    wanted = [life.message_ids[id] for id in evidence]
    return Outcome(
        said=sum(map(_size, messages)),
        soft=built.budget.soft,
        at_the_end=load_meter(session_id).used_tokens,
        runs=list_runs(session_id, limit=100_000),
        summaries=summaries,
        reached=reached,
        originals=[message.id for message in messages],
        prompts=prompts,
        files=len(life.files),
        files_named=sum(id in named for id in life.files.values()),
        evidence=[steps[id] for id in wanted if id in steps],
    )


def _manifests(session_id: str) -> Iterator[str]:
    """Yield the file lists named by the summaries in the context, and the lists named in those."""
    entries = [entry for entry in load_state(session_id).entries if isinstance(entry, SummaryEntry)]
    waiting = [name for entry in entries for name in files_in_footer(entry.text).manifests]
    while waiting:
        text = read_range(waiting.pop().id, limit=LARGEST_MANIFEST, session_id=session_id).text
        waiting += read_file_manifest(text).manifests
        yield text


def _size(message: StoredMessage) -> int:
    """Return the tokens of a message in a context, including outputs that became tombstones."""
    parts = tuple(
        replace(stored, part=replace(stored.part, compacted_at=None)) if isinstance(stored.part, ToolPart) else stored
        for stored in message.parts
    )
    return whole(MessageEntry(position=0, message=replace(message, parts=parts))).tokens


def _expanded(session_id: str, summaries: Mapping[str, SummaryRecord]) -> Iterator[tuple[str, int]]:
    """Yield every message that the context covers, with the number of summaries opened to reach it."""
    waiting = [(item.item_type, item.item_id, 0) for item in reversed(load_context_items(session_id))]
    while waiting:
        kind, id, steps = waiting.pop()
        if kind == "message":
            yield id, steps
        else:
            waiting += [(kind, source, steps + 1) for kind, source in reversed(summaries[id].source_ids)]


def _row(sample: Sample, alias: str, outcome: Outcome) -> tuple[str, ...]:
    levels = Counter(summary.level for summary in outcome.summaries)
    is_whole = [id for id, _ in outcome.reached] == outcome.originals
    return (
        sample.name,
        alias,
        f"{outcome.said:,}",
        f"{outcome.soft:,}",
        _median([run.tokens_before for run in outcome.runs]),
        _median([run.tokens_after for run in outcome.runs]),
        f"{outcome.at_the_end:,}",
        str(len(outcome.runs)),
        str(len(outcome.needless)),
        f"{_filled(outcome, median):.0%}, {_filled(outcome, min):.0%}",
        str(sum(prompt.absent > 0 for prompt in outcome.prompts)),
        str(sum(not prompt.has_question for prompt in outcome.prompts)),
        "/".join(str(levels[level]) for level in (1, 2, 3)),
        _kept([summary for summary in outcome.summaries if summary.kind == "leaf"]),
        str(max((summary.depth for summary in outcome.summaries), default=-1) + 1),
        f"{len(outcome.originals)} in order" if is_whole else "NOT ALL",
        f"{outcome.files_named} of {outcome.files}" if outcome.files else "",
        *(_share(outcome.evidence, steps, len(sample.evidence)) for steps in (0, 1, 2)),
    )


def _kept(summaries: Sequence[SummaryRecord]) -> str:
    """Return the share of the salient items of their sources that stands in the summaries themselves."""
    measured = [measure_items(items_of_summary(summary), Shown([summary.text])) for summary in summaries]
    counted = sum(fidelity.counted for fidelity in measured)
    return f"{1 - sum(len(fidelity.missing) for fidelity in measured) / counted:.0%}" if counted else ""


def _filled(outcome: Outcome, of: Callable[[list[float]], float]) -> float:
    """Return how full the prompts were from the first compaction on."""
    return of([prompt.used for prompt in outcome.prompts if prompt.is_compacted] or [1.0])


def _median(numbers: Sequence[int | None]) -> str:
    known = [number for number in numbers if number is not None]
    return f"{median(known):,.0f}" if known else ""


def _share(evidence: Sequence[int], steps: int, count: int) -> str:
    return f"{sum(taken <= steps for taken in evidence) / count:.0%}" if count else ""

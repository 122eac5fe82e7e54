"""Sessions without a database, for what has to hold of any compaction: the decisions are the real ones, nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mnesis_core.compaction.selection import (
    Condensation,
    Outcome,
    Situation,
    Span,
    choose_pinned,
    choose_prunable,
    next_round,
    outcome,
    reading_of,
)
from mnesis_core.compaction.summarise import SummaryResult, summarise
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.config import Config
from mnesis_core.context.additions import Refill, newest_summarised, plan_refill, size_of_messages
from mnesis_core.context.assembly import assemble
from mnesis_core.context.continuation import SentPrompt
from mnesis_core.context.entries import Assembled, ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.context.fitting import Budget, make_budget, whole
from mnesis_core.files.references import Named, files_in_footer, read_file_manifest
from mnesis_core.messages import StoredMessage, ToolPart
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import new_id
from mnesis_core.text import printable
from tests.core.context import contexts as make
from tests.support.material.histories import Exchange
from tests.support.providers.hostile_models import MODELS
from tests.support.providers.unrecorded import Unrecorded


@dataclass(slots=True, kw_only=True)
class Talk:
    """A session without a database, and what its summaries stand for."""

    entries: list[ContextEntry]
    budget: Budget
    model: ScriptedModel
    config: Config = field(default_factory=Config)
    everything: bool = False
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """The manifests, as they would be kept."""
    questions: list[StoredMessage] = field(default_factory=list)
    said: list[StoredMessage] = field(default_factory=list)
    """Everything that a refill may show again."""
    refill: Refill | None = None

    def assembled(self, last: Assembled | None = None) -> Assembled:
        """The prompt of now, behind what the last call was sent, if nothing was compacted since."""
        pinned = self.pinned()
        again = [
            message
            for message in self.summarised()
            if self.refill and self.refill.first_seq <= message.seq <= self.refill.last_seq
        ]
        return assemble(
            self.entries,
            system_prompt="Be brief.",
            tools=(),
            budget=self.budget,
            pinned=pinned,
            refill=again,
            refill_room=self.refill.room_in(self.entries, pinned) if self.refill else 0,
            sent=SentPrompt(rows=last.manifest, messages=self.summarised()) if last else None,
        )

    def pinned(self) -> list[StoredMessage]:
        standing = {id_of(entry) for entry in self.entries}
        chosen = choose_pinned(self.questions, self.config, self.budget)
        return [message for message in chosen if message.id not in standing]

    def summarised(self) -> list[StoredMessage]:
        standing = {id_of(entry) for entry in self.entries}
        return [message for message in self.said if message.id not in standing]

    def plan(self) -> None:
        """What an automatic run does at its end."""
        summarised = [message for message in self.summarised() if message.seq <= newest_summarised(self.entries)]
        used = self.situation().used - size_of_messages(self.pinned())
        self.refill = plan_refill(summarised, self.entries, used=used, budget=self.budget, calibration=1)

    def situation(self) -> Situation:
        return Situation(
            entries=self.entries,
            config=self.config,
            budget=self.budget,
            used=self.assembled().wanted_tokens,
            reads=piece_limit(self.model.spec, self.config),
            everything=self.everything,
        )

    async def compact(self) -> Outcome:
        """What a run does, with no bound but that it has to get somewhere in each round."""
        pruned = self.prune()
        rounds = 0
        while (chosen := next_round(self.situation())) is not None:
            rounds += 1
            assert rounds <= 2 * len(self.entries) + 2 * len(self.sources)
            await self.round(chosen)
        return outcome(self.situation().used, self.budget, changed=bool(pruned or rounds), more=False)

    def prune(self) -> bool:
        chosen = set(choose_prunable(self.situation()).part_ids)
        self.entries = [
            replace(entry, message=tombstoned(entry.message, chosen)) if isinstance(entry, MessageEntry) else entry
            for entry in self.entries
        ]
        return bool(chosen)

    async def round(self, chosen: Span | Condensation) -> None:
        before = self.situation().used
        asked = len(self.model.requests)
        pieces, quotables = reading_of(chosen, piece_limit(self.model.spec, self.config))
        result = await summarise(
            pieces,
            chosen.tokens,
            self.model,
            self.config,
            self.budget,
            kind=chosen.kind,
            quotables=quotables,
            manifest_id=new_id("file"),
            named=chosen.named,
            recorder=Unrecorded(self.model),
        )
        if result.manifest:
            self.files[result.manifest.name.id] = result.manifest.text
        prompts = [request.payload["messages"][1]["content"] for request in self.model.requests[asked:]]
        assert result.level == 3 or all(any(printable(piece) in prompt for prompt in prompts) for piece in pieces)
        assert (result.level == 3) is result.text.startswith("[Level 3 excerpt") or len(pieces) > 1
        assert all(name in result.text for name in chosen.named.summaries)
        assert self.reached(chosen.named) <= self.reached(files_in_footer(result.text))
        self.swap(chosen, result)
        assert self.situation().used < before

    def swap(self, chosen: Span | Condensation, result: SummaryResult) -> None:
        name = f"sum_made_{len(self.sources) + 1}"
        self.sources[name] = chosen.source_ids
        inside = [entry for entry in self.entries if id_of(entry) in chosen.source_ids]
        made = make.summary(1, result.text, first=chosen.first_seq, last=chosen.last_seq, depth=chosen.depth)
        place = min(entry.position for entry in inside)
        made = replace(made, id=name, position=place, message_count=chosen.message_count)
        assert whole(made).tokens < chosen.tokens
        kept = [entry for entry in self.entries if id_of(entry) not in chosen.source_ids]
        self.entries = sorted([*kept, made], key=lambda entry: entry.position)

    def expanded(self, ids: Sequence[str] | None = None) -> list[str]:
        """The originals that the context stands for, in order."""
        names = [id_of(entry) for entry in self.entries] if ids is None else ids
        return [
            found for name in names for found in (self.expanded(self.sources[name]) if name in self.sources else [name])
        ]

    def reached(self, named: Named) -> set[str]:
        """The files that are named, and those in their manifests, and in the manifests of these."""
        below = [self.reached(read_file_manifest(self.files[manifest.id])) for manifest in named.manifests]
        return set(named.files).union(*below)


def id_of(entry: ContextEntry) -> str:
    return entry.id if isinstance(entry, SummaryEntry) else entry.message.id


def tombstoned(message: StoredMessage, part_ids: set[str]) -> StoredMessage:
    parts = tuple(
        replace(stored, part=replace(stored.part, compacted_at=make.NOON))
        if stored.id in part_ids and isinstance(stored.part, ToolPart)
        else stored
        for stored in message.parts
    )
    return replace(message, parts=parts)


def history(talk: Sequence[Exchange]) -> list[ContextEntry]:
    return make.entries_of(list(_messages(talk)))


def _messages(talk: Sequence[Exchange]) -> Iterator[StoredMessage]:
    seq = 0
    for number, exchange in enumerate(talk):
        turn = f"turn_{number}" if exchange.has_turn else None
        if exchange.question is not None:
            seq += 1
            yield make.message(seq, "user", exchange.question, turn=turn)
        seq += 1
        yield make.message(seq, "assistant", *exchange.answers, turn=turn)


def talk_of(entries: list[ContextEntry], kind: str, window: int, **values: object) -> Talk:
    spec = make.spec(window, window // 8)
    model = ScriptedModel(spec=spec, replies=MODELS[kind])
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    questions = [message for message in messages if message.role == "user"]
    budget = make_budget(spec, Config())
    return Talk(entries=entries, budget=budget, model=model, questions=questions, **values)  # type: ignore[arg-type]

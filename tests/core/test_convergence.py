"""Whatever the history and whoever summarises: compaction ends, the context fits or the end has a name, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnesis_core.assembly import assemble
from mnesis_core.assembly.fitting import whole
from mnesis_core.budget import Budget, make_budget
from mnesis_core.compaction import (
    Condensation,
    Outcome,
    Situation,
    Span,
    SummaryResult,
    kind_of,
    next_round,
    outcome,
    piece_limit,
    reading_of,
    summarise,
)
from mnesis_core.config import Config, override
from mnesis_core.dag import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.messages import StoredMessage, ToolPart
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.pruning import select_prunable
from mnesis_core.text import printable
from tests.core import contexts as make
from tests.support.histories import FILE, Exchange, exchanges
from tests.support.hostile_models import MODELS


@dataclass(slots=True, kw_only=True)
class Talk:
    """A session without a database, and what its summaries stand for."""

    entries: list[ContextEntry]
    budget: Budget
    model: ScriptedModel
    config: Config = field(default_factory=Config)
    everything: bool = False
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def situation(self) -> Situation:
        assembled = assemble(self.entries, system_prompt="Be brief.", tools=(), budget=self.budget)
        return Situation(
            entries=self.entries,
            config=self.config,
            budget=self.budget,
            used=assembled.wanted_tokens,
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
        chosen = set(select_prunable(self.entries, self.config, self.budget).part_ids)
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
            kind=kind_of(chosen),
            quotables=quotables,
            named=chosen.named,
        )
        prompts = [request.payload["messages"][1]["content"] for request in self.model.requests[asked:]]
        assert result.level == 3 or all(any(printable(piece) in prompt for prompt in prompts) for piece in pieces)
        assert (result.level == 3) is ("[Level 3 excerpt" in result.text) or len(pieces) > 1
        assert all(name in result.text for name in (*chosen.named.summaries, *chosen.named.files))
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
    return Talk(entries=entries, budget=make_budget(spec, Config()), model=model, **values)  # type: ignore[arg-type]


async def check(talk: Talk) -> Outcome:
    """Everything that has to hold of a compaction of any talk by any model."""
    before = talk.entries
    ended = await talk.compact()
    used = talk.situation().used
    assert used < talk.budget.hard or ended in (Outcome.STILL_TOO_LARGE, Outcome.NOTHING_TO_SUMMARISE)
    assert (
        assemble(talk.entries, system_prompt="Be brief.", tools=(), budget=talk.budget).used_tokens
        <= talk.budget.usable
    )
    assert talk.expanded() == [id_of(entry) for entry in before]
    shown = {id_of(entry) for entry in talk.entries}
    assert last_two_questions(before) <= shown
    assert not before or isinstance(before[-1], SummaryEntry) or id_of(before[-1]) in shown
    asked = len(talk.model.requests)
    assert await talk.compact() in (ended, Outcome.NOTHING_TO_SUMMARISE)
    assert len(talk.model.requests) == asked, "a second compaction of the same context asks nobody"
    return ended


def last_two_questions(entries: Sequence[ContextEntry]) -> set[str]:
    """What the user said last and what came after it."""
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    return {message.id for message in messages[places[-2] :]} if len(places) >= 2 else {messages[p].id for p in places}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(exchanges, max_size=14),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from([4_000, 8_000, 8_000, 32_000]),
    st.booleans(),
)
async def test_compaction_converges(talk: list[Exchange], kind: str, window: int, everything: bool) -> None:
    await check(talk_of(history(talk), kind, window, everything=everything))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(make.contexts(size=20), st.sampled_from(sorted(MODELS)))
async def test_compaction_of_the_nastiest_texts_converges(entries: list[ContextEntry], kind: str) -> None:
    await check(talk_of(entries, kind, 4_000))


@pytest.mark.parametrize("kind", sorted(MODELS))
@pytest.mark.parametrize("window", [4_000, 32_000])
async def test_a_long_talk_ends_below_the_target_with_any_model(kind: str, window: int) -> None:
    named = make.turn(1, f"keep {FILE} in mind", make.prose(300))
    entries = make.entries_of([*named, *make.conversation(window // 300, tokens=140)[2:]])
    talk = talk_of(entries, kind, window)
    assert talk.situation().used > talk.budget.soft
    assert await check(talk) in (Outcome.TARGET_MET, Outcome.FITS)
    assert talk.situation().used < talk.budget.soft
    assert any(FILE in entry.text for entry in talk.entries if isinstance(entry, SummaryEntry))


async def test_many_rounds_make_a_dag_of_some_depth_and_not_one_heap() -> None:
    config = override(Config(), {"compaction": {"condense_fan_in": 4, "condense_min_fan_in": 2}})
    talk = talk_of([], "filling its target", 16_000, config=config)
    for number in range(1, 400):
        added = make.entries_of(make.turn(number, make.prose(300), make.prose(300)))
        talk.entries = [*talk.entries, *added]
        await talk.compact()
    depths = [entry.depth for entry in talk.entries if isinstance(entry, SummaryEntry)]
    assert max(depths) >= 2
    assert len(depths) > 1
    assert all(len(names) <= 4 for names in talk.sources.values() if names[0].startswith("sum_"))
    assert talk.expanded() == [f"msg_{seq:04}" for seq in range(1, 799)]
    assert len(talk.sources["sum_made_1"]) > 2

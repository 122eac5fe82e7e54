"""No file id is lost by a compaction, wherever it stood and however many there are; too many stand in a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.files.references import (
    MOST_TOKENS,
    NEWEST,
    ManifestName,
    Named,
    files_in_footer,
    name_files,
    read_file_manifest,
    with_footer,
    without_footer,
)
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import ReasoningPart, StoredMessage
from mnesis_core.records import new_id
from tests.core.context import contexts as make
from tests.support.material.imagined_talks import Talk, id_of, talk_of
from tests.support.material.planted_files import FOREIGN, PLACES, Planted, ids_for, parts_of, planted
from tests.support.providers.hostile_models import MODELS

MANIFEST = "file_01HZY3K9QV5T7W8X2C4D6F8G0J"
MODEL_OF_LEVEL = {1: "good", 2: "good at every second try", 3: "failing"}
rounds = st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.lists(planted, min_size=1, max_size=8)), max_size=4)


def add_turn(talk: Talk, turn: Planted, numbers: Iterator[int], known: dict[str, list[str]]) -> None:
    seq = max([0, *(last_seq(entry) for entry in talk.entries)]) + 1
    ids = ids_for(turn, numbers)
    said: list[StoredMessage] = [
        make.message(seq, "user", f"Go on. {make.prose(20)}", turn=f"turn_{seq}"),
        make.message(seq + 1, "assistant", *parts_of(turn, ids), turn=f"turn_{seq}"),
    ]
    known[said[1].id] = ids
    talk.entries = [*talk.entries, *make.entries_of(said)]


def last_seq(entry: ContextEntry) -> int:
    return entry.last_seq if isinstance(entry, SummaryEntry) else entry.message.seq


def lost(talk: Talk, known: dict[str, list[str]]) -> set[str]:
    """The ids that neither what the model is sent names, nor a manifest there, nor a tombstone's part."""
    summaries = [entry for entry in talk.entries if isinstance(entry, SummaryEntry)]
    sent = all_that_is_sent(talk.entries)
    named = [files_in_footer(entry.text) for entry in summaries]
    assert all(entry in sent for each in named for entry in each.file_entries)
    reached = set().union(*(talk.reached(each) for each in named))
    standing = {id_of(entry): entry.message for entry in talk.entries if isinstance(entry, MessageEntry)}
    gone = {id for message_id, ids in known.items() if message_id not in standing for id in ids}
    shown = {id: standing[message_id] for message_id, ids in known.items() if message_id in standing for id in ids}
    hidden = {id for id, message in shown.items() if id not in sent and not is_listed(message, sent)}
    return (gone - reached) | hidden


def all_that_is_sent(entries: Sequence[ContextEntry]) -> str:
    prompt = assemble(entries, system_prompt="", tools=(), budget=make.budget(10**6))
    texts = [(message.text, message.tool_calls, message.tool_results) for message in prompt.messages]
    return "\n".join(
        [text for text, _, _ in texts]
        + [call.arguments for _, calls, _ in texts for call in calls]
        + [result.text for _, _, results in texts for result in results]
    )


def is_listed(message: StoredMessage, sent: str) -> bool:
    """Whether a part of a message is named as the list of its files, or is of a kind that no model is sent."""
    return any(f"listed in {stored.id}]" in sent or isinstance(stored.part, ReasoningPart) for stored in message.parts)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(rounds, st.sampled_from([4_000, 8_000, 32_000]))
async def test_no_file_id_is_lost_by_any_compactions(history: list[tuple[int, list[Planted]]], window: int) -> None:
    numbers = count(1)
    known: dict[str, list[str]] = {}
    talk = talk_of([], "good", window, everything=True)
    for level, turns in history:
        talk.model = talk_of([], MODEL_OF_LEVEL[level], window).model
        for turn in turns:
            add_turn(talk, turn, numbers, known)
        await talk.compact()
        assert lost(talk, known) == set()


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(MODELS))
async def test_two_thousand_file_ids_are_named_and_take_little_room(model: str) -> None:
    numbers = count(1)
    known: dict[str, list[str]] = {}
    talk = talk_of([], model, 8_000, everything=True)
    for number in range(50):
        add_turn(talk, Planted(place=PLACES[number % len(PLACES)], ids=40, tokens=200), numbers, known)
        if number % 10 == 9:
            await talk.compact()
    assert sum(map(len, known.values())) == 2_000
    assert talk.files
    assert lost(talk, known) == set()
    for entry in talk.entries:
        if isinstance(entry, SummaryEntry):
            assert estimate_text(entry.text) - estimate_text(without_footer(entry.text)) < talk.budget.target // 2


def files(number: int) -> tuple[str, ...]:
    return tuple(new_id("file") for _ in range(number))


def test_few_files_are_named_and_many_stand_in_a_manifest_with_the_newest_beside_it() -> None:
    few = Named(summaries=("sum_1",), files=files(15))
    assert name_files(few, MOST_TOKENS, MANIFEST).named == few
    many = Named(summaries=("sum_1",), files=files(40), manifests=(ManifestName(id="file_00000000", count=3),))
    naming = name_files(many, MOST_TOKENS, MANIFEST)
    name = ManifestName(id=MANIFEST, count=41)
    assert naming.named == Named(summaries=("sum_1",), files=many.files[-NEWEST:], manifests=(name,))
    assert naming.manifest.name == name
    read = read_file_manifest(naming.manifest.text)
    assert (read.files, read.manifests) == (many.files, many.manifests)
    text = with_footer("They spoke.", naming.named)
    assert text.endswith(f", {many.files[-1]}, 41 listed in {MANIFEST}]")
    assert without_footer(text) == "They spoke."
    assert files_in_footer(text) == Named(files=naming.named.files, manifests=(name,))


def test_in_the_smallest_room_the_manifest_alone_is_named() -> None:
    naming = name_files(Named(files=files(2)), 0, MANIFEST)
    assert naming.named == Named(manifests=(ManifestName(id=MANIFEST, count=2),))
    alone = Named(manifests=naming.named.manifests)
    assert name_files(alone, 0, MANIFEST).named == alone


@given(st.lists(st.text(min_size=1) | st.sampled_from(FOREIGN), min_size=1, unique=True))
def test_an_id_that_fits_no_line_stands_in_a_manifest(foreign: list[str]) -> None:
    naming = name_files(Named(files=tuple(foreign)), 10**6, MANIFEST)
    if naming.manifest is None:
        assert files_in_footer(with_footer("", naming.named)).files == tuple(foreign)
    else:
        assert set(read_file_manifest(naming.manifest.text).files) == set(foreign)


@pytest.mark.parametrize("text", ["", "\n\n", '"', '"\\', "[1, 2]", "9" * 30 + " listed in x", "\x00\ud800"])
def test_what_is_no_manifest_is_read_without_an_error(text: str) -> None:
    assert read_file_manifest(text).manifests == ()

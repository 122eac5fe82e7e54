"""File ids through compactions of real sessions: each is named, at first or at last, and no id of one is a dead end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count

import pytest

from agents_app.tools.registry import ToolContext
from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from compaction_app.compact import compact_now
from compaction_app.context.state import build_context, load_state, rebuild_payload
from compaction_app.queries import list_summaries
from compaction_app.revise import apply, preview
from files_app.contents import put_content
from files_app.queries import load_file_reference, read_range
from files_app.store import store_file_reference
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.files.references import Named, files_in_footer, read_file_manifest
from mnesis_core.messages import FileRefPart, TextPart
from mnesis_core.records import SessionRecord
from mnesis_core.text import printable
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.defects.talks import WORDS, add_turn, compact_all, model_of
from tests.support.material.planted_files import PLACES, Planted, ids_for, parts_of
from tests.support.providers.hostile_models import MODELS
from tests.support.record.tools import find_tool

WINDOW = {"context_window": 32_000, "max_output_tokens": 1_000}
PAGE_END = re.compile(r"go on with offset=(\d+)\]")
ENTRY = re.compile(r"^- (file_\w+): (a list of)?", re.MULTILINE)


def ask(session: SessionRecord, name: str, **arguments: object) -> str:
    answer = find_tool(name).call(ToolContext(session_id=session.id, owner_id=session.owner_id), json.dumps(arguments))
    assert isinstance(answer, str)
    return answer


def plant(session: SessionRecord, turn: Planted, numbers: Iterator[int]) -> list[str]:
    """A turn with file ids; returns them."""
    ids = ids_for(turn, numbers)
    parts = [TextPart(text=part) if isinstance(part, str) else part for part in parts_of(turn, ids)]
    add_turn(session, f"Go on. {WORDS * 2}", *parts)
    return ids


def summaries_in_context(session: SessionRecord) -> list[SummaryEntry]:
    return [entry for entry in load_state(session.id).entries if isinstance(entry, SummaryEntry)]


def reached(session: SessionRecord, named: Named) -> set[str]:
    """The files that are named, or stand in a manifest of the session, or in one that it lists."""
    found = set(named.files)
    for manifest in named.manifests:
        kept = read_range(manifest.id, limit=10**7, session_id=session.id)
        below = read_file_manifest(kept.text)
        assert len(below.files) + len(below.manifests) == manifest.count
        found |= reached(session, below)
    return found


def lost(session: SessionRecord, known: set[str]) -> set[str]:
    """The ids that neither what the model is sent names, nor a manifest there, nor a message that still stands there."""
    sent = str(build_context(session.id).payload)
    footers = [files_in_footer(entry.text) for entry in summaries_in_context(session)]
    assert all(entry in sent for footer in footers for entry in footer.file_entries)
    shown = {entry.message.id for entry in load_state(session.id).entries if isinstance(entry, MessageEntry)}
    standing = [repr(message.parts) for message in load_messages(session.id, limit=1_000) if message.id in shown]
    left = known - set().union(*(reached(session, footer) for footer in footers))
    return {id for id in left if not any(repr(id)[1:-1] in text for text in standing)}


def paged(session: SessionRecord, manifest_id: str) -> list[tuple[str, str]]:
    """All that ``lcm_describe`` lists of a manifest, page by page, and whether that is a list itself."""
    listed: list[tuple[str, str]] = []
    offset: int | None = 0
    while offset is not None:
        page = ask(session, "lcm_describe", id=manifest_id, offset=offset)
        listed += ENTRY.findall(page)
        following = PAGE_END.search(page)
        offset = int(following[1]) if following else None
    return listed


@pytest.mark.slow
def test_no_id_is_lost_over_rounds_of_every_level_and_each_leads_somewhere(session, script):
    numbers, known = count(1), set()
    for level in ("filling its target", "failing", "good at every second try", "failing", "filling its target"):
        script(MODELS[level], window=4_000)
        for place in PLACES:
            known.update(plant(session, Planted(place=place, ids=4, tokens=60), numbers))
        compact_now(session.id)
        assert lost(session, known) == set()
    compact_all(session)
    assert lost(session, known) == set()
    levels = {(summary.kind, summary.level) for summary in list_summaries(session.id)}
    assert {level for _, level in levels} == {1, 2, 3}
    assert {kind for kind, _ in levels} == {"leaf", "condensed"}
    assert len(known) == 20 * len(PLACES)
    # A lone surrogate cannot be asked for in JSON: the manifest's own page tells of it.
    for id in [id for id in sorted(known) if id == printable(id)][::3]:
        assert ask(session, "lcm_describe", id=id)
    assert all(rebuild_payload(call).digest_matches for call in list_calls(session.id))
    assert verify_session(session.id).problems == []


@pytest.mark.slow
def test_two_thousand_files_of_one_session_are_listed_page_by_page(session, script):
    script(model_of(), window=32_000)
    numbers, known = count(1), set()
    for number in range(50):
        known.update(plant(session, Planted(place=("text", "input", "output")[number % 3], ids=40, tokens=40), numbers))
    compact_all(session)
    last = plant(session, Planted(place="text", ids=1, tokens=10), numbers)
    assert len(known) == 2_000
    assert lost(session, known | set(last)) == set()
    waiting = [
        manifest.id for entry in summaries_in_context(session) for manifest in files_in_footer(entry.text).manifests
    ]
    assert waiting
    listed: set[str] = set()
    while waiting:
        entries = paged(session, waiting.pop())
        assert len(entries) == len(set(entries))
        listed.update(id for id, is_list in entries if not is_list)
        waiting += [id for id, is_list in entries if is_list]
    assert known - standing_ids(session) <= listed
    assert sum(entry.token_count for entry in summaries_in_context(session)) < 2_000


def standing_ids(session: SessionRecord) -> set[str]:
    """Ids in the messages that were not summarised."""
    text = str([entry.message for entry in load_state(session.id).entries if isinstance(entry, MessageEntry)])
    return set(re.findall(r"file_\w+", text))


def test_a_manifest_tells_paths_and_types_of_what_is_kept_imported_or_only_named(session, script, alice):
    script(model_of(), window=32_000)
    with change(session.id) as record:
        kept = store_file_reference(record, content_id=put_content(b"1"), path="/data/tides.csv", file_type="csv")
    with change(lifecycle.create_session(owner=alice).id) as record:
        elsewhere = store_file_reference(record, content_id=put_content(b"2"), path="/secret.csv")
    foreign = FileRefPart(file_id="file-AbC, 1]", path="old.json", file_type="json", token_count=7)
    many = plant(session, Planted(place="text", ids=60, tokens=40), count(1))
    add_turn(session, f"See {elsewhere} and {kept}. {WORDS * 8}", foreign)
    for _ in range(4):
        add_turn(session, WORDS * 8)
    compact_now(session.id)
    [entry] = summaries_in_context(session)
    footer = files_in_footer(entry.text)
    [manifest] = footer.manifests
    assert footer.files[-1] == kept
    pages = ask(session, "lcm_describe", id=manifest.id) + ask(session, "lcm_describe", id=manifest.id, offset=50)
    assert f"- {kept}: /data/tides.csv, type csv, 0 tokens" in pages
    assert "- file-AbC, 1]: old.json, type json, 7 tokens" in pages
    assert f"- {many[0]}: only named here; lcm_describe tells more" in pages
    assert f"[entries 0 to 50 of {manifest.count}; go on with offset=50]" in pages
    assert f"- {elsewhere}: only named here" in pages
    assert "- #2 (assistant, " in ask(session, "lcm_describe", id=many[0])
    assert "old.json" in ask(session, "lcm_describe", id="file-AbC, 1]")
    assert many[5] in ask(session, "lcm_read", id=manifest.id)
    file = load_file_reference(manifest.id, session_id=session.id)
    assert (file.path, file.file_type) == (f".mnesis/manifests/{entry.id}.txt", "text")
    assert manifest.id in ask(session, "lcm_grep", pattern=f"summary {entry.id}")


def test_a_summary_that_is_said_again_has_a_manifest_of_its_own(session, script):
    script(model_of(), window=32_000)
    known = set(plant(session, Planted(place="text", ids=60, tokens=40), count(1)))
    for _ in range(4):
        add_turn(session, WORDS * 8)
    compact_now(session.id)
    [before] = summaries_in_context(session)
    apply(preview(before.id))
    [after] = summaries_in_context(session)
    assert files_in_footer(after.text).manifests != files_in_footer(before.text).manifests
    assert lost(session, known) == set()
    assert verify_session(session.id).problems == []


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b'"\\', b"9 listed in file_0123abcd\n"])
def test_what_only_looks_like_a_manifest_is_described_without_an_error(session, content):
    with change(session.id) as record:
        file_id = store_file_reference(record, content_id=put_content(content), path=".mnesis/manifests/x.txt")
    assert file_id in ask(session, "lcm_describe", id=file_id, offset=10**9)

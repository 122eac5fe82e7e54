"""PDFs of messages: sent whole to a model that takes them, and told in words to one that does not."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from agents_app.schemas import MessageIn
from agents_app.turns import lifecycle
from mnesis_core.errors import InvalidPicture
from mnesis_core.files.pictures import ANTHROPIC, GEMINI, MOST_PAGES, OPENAI, PDF, RULES, render
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.records import SessionRecord, TurnRecord
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from tests.support.material.drawings import document, drawing, file_part, image_part
from tests.support.people.story import calls_rebuilt
from tests.support.providers.caching_provider import CachingProvider, documents_of

PAGES = ("The harbour opens at six.", "Second page", "")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("OPENAI_API_KEY", "key")


def counted(path: Path, data: bytes, rule: Any = ANTHROPIC) -> Any:
    path.write_bytes(data)
    return render(path, rule)


@pytest.mark.parametrize("rule", RULES.values())
def test_a_pdf_counts_its_text_and_a_picture_of_each_page(tmp_path: Path, rule: Any):
    found = counted(tmp_path / "a", document(*PAGES), rule)
    assert (found.media_type, found.pages, found.data) == (PDF, 3, b"")
    assert found.tokens == 3 * rule.page_tokens + sum(map(estimate_text, PAGES))
    assert {rule.page_tokens for rule in (ANTHROPIC, OPENAI, GEMINI)} == {1_600, 1_105, 258}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (document(*[""] * (MOST_PAGES + 1)), "101 pages"),
        (document("secret", password="word"), "encrypted"),
        (document("whole")[:200], "not readable"),
        (b"%PDF-1.7\n" + b"\0" * 16_000_000, "more than"),
        (b"%PDF-", "not readable"),
    ],
)
def test_what_no_provider_takes_is_not_sent(tmp_path: Path, data: bytes, why: str):
    with pytest.raises(ValueError, match=why):
        counted(tmp_path / "a", data)


def test_a_file_part_holds_a_pdf_and_a_picture_part_a_picture():
    said, sent = MessageIn(parts=[{"type": "text", "text": "Read"}, file_part(document("x"))]).said()
    assert (said, sent[0].media_type, sent[0].name[:9]) == ("Read", PDF, "document-")
    for part in (file_part(drawing()), image_part(document("x"))):
        with pytest.raises(InvalidPicture):
            MessageIn(parts=[part]).said()


async def ask(alice: Any, provider: CachingProvider, *pdfs: bytes, **takes: Any) -> tuple[SessionRecord, TurnRecord]:
    """Ask about PDFs; the turn has ended."""
    name = takes.pop("name", "anthropic/claude-sonnet-4-5")
    url = f"{provider.url}/v1" if name.startswith("openai/") else provider.url
    spec = settle_model(
        alias="reader", litellm_model=name, api_base=url, context_window=60_000, max_output_tokens=2_000,
        timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=None, cache="5m",
        prices=EnteredPrices(input=3, output=15), **takes,
    )  # fmt: skip
    await db(put_model, spec)
    session = await db(lifecycle.create_session, owner=alice, model="reader")
    _, sent = MessageIn(parts=[file_part(pdf) for pdf in pdfs]).said()
    started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message="When?", pictures=sent)
    return session, await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)


@pytest.mark.slow
@pytest.mark.both_databases
async def test_a_pdf_is_sent_whole_to_claude(alice: Any):
    pdf = document(*PAGES)
    with CachingProvider(lambda _: "At six.") as provider:
        session, turn = await ask(alice, provider, pdf)
    assert (turn.state, provider.refusals) == ("completed", [])
    [block] = documents_of(provider.requests[0])
    assert base64.b64decode(block["source"]["data"]) == pdf
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_openai_gets_it_as_a_file(alice: Any):
    with CachingProvider(lambda _: "At six.") as provider:
        session, _ = await ask(alice, provider, document(*PAGES), name="openai/gpt-4o", takes_documents=True)
    [part] = [part for part in provider.requests[0]["messages"][-1]["content"] if part["type"] == "file"]
    assert part["file"]["filename"].endswith(".pdf")
    assert part["file"]["file_data"].startswith("data:application/pdf;base64,")
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_who_takes_none_reads_what_was_found_in_it(alice: Any):
    with CachingProvider(lambda _: "At six.") as provider:
        session, _ = await ask(alice, provider, document(*PAGES), takes_documents=False)
    assert documents_of(provider.requests[0]) == []
    assert "PDF, 3 pages" in str(provider.requests[0]["messages"])
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_pages_beyond_the_limit_leave_with_the_oldest_document(alice: Any):
    small = [document(*[f"Page {page} of {number}" for page in range(12)]) for number in range(2)]
    with CachingProvider(lambda _: "At six.") as provider:
        _, turn = await ask(alice, provider, document(*[""] * 101), *small)
    assert (turn.state, provider.refusals) == ("completed", [])
    # Half of the window is less than both of them take.
    assert [base64.b64decode(block["source"]["data"]) for block in documents_of(provider.requests[0])] == [small[1]]

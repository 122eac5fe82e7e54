"""A session to be read: whole, in order, as Markdown and as HTML; hostile texts stay texts; nothing is fetched."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from audit_app.transfer import export, readable
from audit_app.transfer.export import export_readable
from audit_app.transfer.readable import Entry, Opening, markdown_pieces
from compaction_app.compact import compact_now
from mnesis_core.messages import DataPart, FileRefPart, Part, ReasoningPart, TextPart
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message
from sessions_app.record.session_store import soft_delete_session
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

pytestmark = pytest.mark.django_db
LONG = "the tide came in again, " * 4_000


@pytest.fixture
def talk(reader: User) -> str:
    """A session with all that can be said, and a compaction."""
    session_id = new_session(reader, title="Harbour", system_prompt="Be brief.", labels={"stage": "review"})
    parts: list[Part] = [
        ReasoningPart(text="Let me think of the quay."),
        tool(input='{"path": "quay.txt"}', output=LONG),
        FileRefPart(file_id="file_01", path="/quay.csv", exploration_summary="Rows of ships"),
        TextPart(text="It is **high** water."),
    ]
    [_, answer] = say(session_id, ("user", [TextPart(text="How is the tide?")]), ("assistant", parts))
    with change(session_id) as record:
        message_store.tombstone_parts(record, [load_message(answer, session_id=session_id).parts[1].id])
    for number in range(5):
        exchange(session_id, f"The marigold number {number} is orange.", "Noted: orange. " * 20)
    assert compact_now(session_id).summary_ids
    exchange(session_id, "The very last word.", "Yes.")
    return session_id


def exported(browser: Client, session_id: str, format: str) -> tuple[Any, str]:
    answer = browser.get(f"/api/sessions/{session_id}/export", {"format": format})
    assert answer.status_code == 200, answer.content
    return answer, asyncio.run(whole(answer.streaming_content)).decode()


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    """What a streamed answer holds."""
    return b"".join([chunk async for chunk in chunks])


@pytest.mark.django_db(transaction=True)  # it is written in a thread of its own
@pytest.mark.parametrize("format", ["markdown", "html"])
def test_everything_is_in_it_and_in_order(browser: Client, talk: str, format: str) -> None:
    answer, text = exported(browser, talk, format)
    assert answer["Content-Disposition"].startswith(f'attachment; filename="{talk}.')
    said = [
        *("Harbour", "stage: review", "Be brief.", "How is the tide?", "think of the quay"),
        *(
            "out of the context since",
            "quay.txt",
            LONG,
            "Rows of ships",
            "number 0 is orange",
            "Summary of messages 1 to",
        ),
        *("very last word", "Yes."),
    ]
    places = [text.find(words) for words in said]
    assert -1 not in places, said[places.index(-1)]
    assert places == sorted(places)
    assert text.index("Compaction") < text.index("very last word")


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_it_is_in_english_whatever_the_language_of_who_asks(
    talk: str, format: export.Readable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable, "format_time", lambda time: f"said in {translation.get_language()}")
    english = b"".join(export_readable(talk, format))
    assert english.count(b"said in en") > 10
    with translation.override("de"):
        said = [(piece, translation.get_language()) for piece in export_readable(talk, format)]
    assert b"".join(piece for piece, _ in said) == english
    assert {language for _, language in said} == {"de"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.both_databases
@pytest.mark.parametrize("format", ["markdown", "html"])
def test_the_chosen_path_comes_first_and_other_branches_after_it(browser: Client, reader: User, format: str) -> None:
    session_id = new_session(reader)
    exchange(session_id, "Said first", "Answered first")
    exchange(session_id, "Said second", "Answered second")
    for parent, after, words in ((0, 2, "third"), (1, 5, "fourth"), (0, 0, "fifth"), (0, 4, "sixth")):
        with change(session_id) as record:
            branch = session_store.begin_branch(record, parent=parent, after_seq=after)
            session_store.choose_branch(record, branch)
        exchange(session_id, f"Said {words}", f"Answered {words}")
    with change(session_id) as record:
        session_store.begin_branch(record, parent=0, after_seq=1)  # nothing was said on it
        session_store.choose_branch(record, 2)
    _, text = exported(browser, session_id, format)
    text = re.sub(r"<[^>]+>|[*#\\-]", " ", text)
    said = [
        *("6; 2 is chosen, and comes first", "Said first", "also continued in branch 0", "Answered first"),
        *("Said third", "also continued in branch 1", "Said fourth", "Answered fourth"),
        *("Branch 0", "another continuation of message 2", "Said second", "also continued in branch 4"),
        *("Branch 1", "another continuation of message 5", "Answered third"),
        *("Branch 3", "another beginning", "Said fifth", "Branch 4", "another continuation of message 4", "Said sixth"),
    ]
    found = re.findall("|".join(map(re.escape, said)), text)
    # What is a fact of a message stands in its heading.
    assert found == [*said[:4], said[5], said[4], *said[6:]]
    assert re.findall(r"Branch (\d)", text) == ["0", "1", "3", "4"]
    assert text.count("Said first") == text.count("Answered sixth") == 1


@pytest.mark.django_db(transaction=True)
def test_html_needs_nothing_and_runs_nothing(browser: Client, reader: User) -> None:
    session_id = new_session(reader, title=HOSTILE, labels={HOSTILE: HOSTILE}, system_prompt=HOSTILE)
    parts: list[Part] = [
        ReasoningPart(text=HOSTILE),
        tool(tool_name=HOSTILE, input=HOSTILE, output=f"</pre></details>{HOSTILE}", error=HOSTILE),
        FileRefPart(file_id=HOSTILE, path=HOSTILE, exploration_summary=HOSTILE),
        DataPart(label=HOSTILE, text=HOSTILE),
        DataPart(label="record", text="kept"),
        TextPart(text=HOSTILE),
    ]
    say(session_id, ("user", [TextPart(text=HOSTILE)]), ("assistant", parts))
    _, page = exported(browser, session_id, "html")
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r'(?:src|srcset|data|action)="', page)
    assert not re.search(r'href="(?!#|https?://|mailto:)', page)
    assert page.count("</pre></details>") == 0
    assert "default-src 'none'" in unescape(page)
    assert "⟨U+202E⟩" in page
    assert "2 imported records" in page


@pytest.mark.django_db(transaction=True)
def test_the_style_is_the_one_that_the_policy_names(browser: Client, talk: str) -> None:
    _, page = exported(browser, talk, "html")
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in unescape(page)


def markdown(text: str) -> str:
    entry = Entry(
        heading="You", at=datetime(2026, 1, 2, tzinfo=UTC), facts=(), blocks=(readable.Block(prose=text),), seq=1
    )
    opening = Opening(title="A", facts=(), system_prompt="")
    return "".join(markdown_pieces(opening, [entry])).partition("UTC*\n\n")[2].rstrip("\n")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("# Assistant · message 2", "#### Assistant · message 2"),
        ("Assistant\n===", "#### Assistant"),
        ("<script>alert(1)</script> a < b", "\\<script>alert(1)\\</script> a < b"),
        ("![i](https://e.example/i.png)", "\\![i](https://e.example/i.png)"),
        ("plain *words*, a - b, 1 = 1", "plain *words*, a - b, 1 = 1"),
        ("> Assistant\n> ---", "> Assistant\n> ---"),
        ("say `<b>` and <b>", "say `<b>` and \\<b>"),
        ("```html\n<b># x</b>\n```", "```html\n<b># x</b>\n```"),
        ("~~~\nleft open", "~~~\nleft open\n~~~"),
        ("- a **list**\n- of two", "- a **list**\n- of two"),
    ],
)
def test_markdown_of_others_keeps_its_form_and_does_nothing(written: str, kept: str) -> None:
    assert markdown(written) == kept


@pytest.mark.parametrize("written", ["\\`<img src=x>\\`", "a ` b\nc ` <img src=x> ` d", "\\<b>", "\\![i](x)"])
def test_what_undoes_a_sign_that_calms_a_line_is_shown_as_it_was_written(written: str) -> None:
    assert markdown(written) == f"```\n{written}\n```"


@given(st.text(alphabet="`\\<>b/![](x)~ \n-&;#", max_size=60))
def test_no_markdown_of_others_holds_a_tag_or_an_image(written: str) -> None:
    tokens = MarkdownIt("commonmark", {"html": True}).parse(markdown(written))
    assert {"html_block", "html_inline", "image"}.isdisjoint(
        each.type for token in tokens for each in (token, *(token.children or ()))
    )


def test_a_fence_is_longer_than_any_inside(reader: User) -> None:
    session_id = new_session(reader, title="[x](javascript:alert(1))")
    say(session_id, ("user", [TextPart(text="q")]), ("assistant", [tool(output="````\n# not a heading")]))
    text = b"".join(export_readable(session_id, "markdown")).decode()
    assert "`````\n````\n# not a heading\n`````" in text
    assert text.startswith("# \\[x\\](javascript:alert(1))")


def test_a_long_session_is_read_a_few_messages_at_a_time(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id = new_session(reader)
    for number in range(25):
        exchange(session_id, f"question {number}", "answer")
    asked: list[int] = []
    load = readable.load_messages
    monkeypatch.setattr(readable, "load_messages", lambda *a, **kw: asked.append(kw["limit"]) or load(*a, **kw))
    pieces = export_readable(session_id, "html")
    for _ in range(3):
        next(pieces)
    assert asked == [readable.MESSAGES]
    assert b"question 24" in b"".join(pieces)


@pytest.mark.django_db(transaction=True)
async def test_the_beginning_is_there_before_the_end_is_written(
    browser: Client, talk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = threading.Event()
    entries = export.entries_of

    def slow(session_id: str) -> Iterator[Entry]:
        first, *others = entries(session_id)
        yield first
        rest.wait()
        yield from others

    monkeypatch.setattr(export, "entries_of", slow)
    answer = await sync_to_async(browser.get)(f"/api/sessions/{talk}/export", {"format": "html"})
    pieces = aiter(answer.streaming_content)
    try:
        beginning = await anext(pieces)
        while b"How is the tide?" not in beginning:
            beginning += await anext(pieces)
        assert b"very last word" not in beginning
    finally:
        rest.set()
    assert b"very last word" in await whole(pieces)


@pytest.mark.django_db(transaction=True)
async def test_an_export_that_nobody_reads_any_more_stops(
    browser: Client, talk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, stopped = threading.Event(), threading.Event()
    entries = export.entries_of

    def endless(session_id: str) -> Iterator[Entry]:
        try:
            first, *_ = entries(session_id)
            yield first
            goes_on.wait()
            while True:
                yield first
        finally:
            stopped.set()

    monkeypatch.setattr(export, "entries_of", endless)
    answer = await sync_to_async(browser.get)(f"/api/sessions/{talk}/export", {"format": "html"})
    pieces = aiter(answer.streaming_content)
    await anext(pieces)
    answer.close()
    goes_on.set()
    assert await asyncio.to_thread(stopped.wait, 20)


def test_only_ones_own_and_only_known_formats(browser: Client) -> None:
    other = new_session(make_user("eve"))
    assert browser.get(f"/api/sessions/{other}/export", {"format": "html"}).status_code == 404
    mine = new_session(User.objects.get(username="ada"))
    assert browser.get(f"/api/sessions/{mine}/export", {"format": "pdf"}).status_code == 422


def test_the_command_writes_one_file_or_one_for_each(reader: User, tmp_path: Path) -> None:
    first, second, gone = (new_session(reader, title=title) for title in ("One", "Two", "Gone"))
    with change(gone) as record:
        soft_delete_session(record)
    call_command("export", first, "--format", "html", "--out", str(tmp_path / "one.html"))
    assert "<title>One" in (tmp_path / "one.html").read_text()
    call_command("export", "--all", "--format", "markdown", "--out", str(tmp_path / "all"))
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted([f"{first}.md", f"{second}.md"])
    with pytest.raises(CommandError):
        call_command("export", "sess_x", "--format", "html", "--out", str(tmp_path / "no.html"))

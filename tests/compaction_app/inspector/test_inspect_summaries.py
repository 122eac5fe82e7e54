"""The inspector's pages about summaries: the drawing's values, the table's rows, one summary beside its sources."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compaction_app.inspector.summaries import ACTIVE, CONDENSED, STALE, SUPERSEDED
from compaction_app.models import SummaryTry
from mnesis_core.messages import DataPart, ReasoningPart, TextPart
from sessions_app.pages.permissions import SEES_RECORDS
from sessions_app.record.timeline_queries import NOW, preview_messages
from tests.support.record.inspected import (
    add_session,
    add_summary,
    add_try,
    add_turn,
    claim,
    finish,
    revise,
    texts_in,
)
from tests.support.record.many_summaries import LEAVES, TOTAL, add_many_summaries
from tests.support.record.talks import HOSTILE

pytestmark = pytest.mark.django_db


class Tree:
    """Eight messages: six behind two leaves and a condensed summary over them, two verbatim."""

    def __init__(self, owner: User, *, text: str = "The tides.") -> None:
        self.id = add_session(owner)
        self.messages = [id for number in range(4) for id in add_turn(self.id, f"Question {number}")]
        self.run = claim(self.id)
        self.left = add_summary(self.id, self.run, self.messages[:4], (1, 4), text=text)
        self.right = add_summary(self.id, self.run, self.messages[4:6], (5, 6), level=3, text="The ferries.")
        self.top = add_summary(
            self.id, self.run, [self.left, self.right], (1, 6), kind="condensed", text="The harbour.", count=6
        )
        finish(self.id, self.run)
        self.here = f"/sessions/{self.id}/inspect/summaries/"
        self.tried = SummaryTry.objects.get(summary_id=self.left).id

    def addresses(self) -> list[str]:
        """Every page and part about these summaries."""
        return [
            self.here,
            f"{self.here}?view=table&id={self.left}",
            f"{self.here}drawing.json",
            f"{self.here}rows/",
            f"{self.here}rows/?under={self.left}",
            f"{self.here}messages/3/",
            f"{self.here}replies/{self.tried}/",
            f"{self.here}{self.left}/",
            f"{self.here}{self.left}/sources/",
            f"{self.here}{self.left}/sources/{self.messages[0]}/",
            f"{self.here}{self.top}/sources/{self.left}/",
        ]


@pytest.fixture
def tree(owner: User) -> Tree:
    return Tree(owner)


def shown(owner_client: Client, address: str, **headers: str) -> str:
    answer = owner_client.get(address, headers=headers)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def drawn(owner_client: Client, tree: Tree) -> dict[str, Any]:
    """The drawing's values, its differences added up again."""
    values: dict[str, Any] = owner_client.get(f"{tree.here}drawing.json").json()
    return values | {name: list(accumulate(values[name])) for name in ("depth", "first")}


def queries_of(owner_client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        shown(owner_client, address)
    return len(queries)


@pytest.mark.slow
def test_only_the_owner_and_who_may_see_every_record_may_look(tree: Tree, owner_client: Client, client: Client) -> None:
    eve = User.objects.create_user("eve", is_staff=True)
    client.force_login(eve)
    addresses = [*tree.addresses(), f"/summaries/{tree.left}/"]
    for address in addresses:
        assert client.get(address).status_code == 404, address
        assert owner_client.get(address).status_code in (200, 302), address
        assert owner_client.post(address).status_code == 405, address
        assert Client().get(address).url.startswith("/sign-in"), address
    for name in SEES_RECORDS:
        app, _, codename = name.partition(".")
        eve.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    for address in addresses:
        assert client.get(address).status_code in (200, 302), address


def test_a_message_beside_its_summary_takes_what_a_model_was_sent_of_it(tree: Tree, owner_client: Client) -> None:
    plain = add_turn(tree.id, "Why?", TextPart(text="Because."))
    unsent = (ReasoningPart(text="Well, well. " * 200), DataPart(label="progress", text="half way " * 200))
    also = add_turn(tree.id, "Why?", TextPart(text="Because."), *unsent)
    previews = preview_messages([plain[1], also[1]], at=NOW)
    assert previews[plain[1]].tokens == previews[also[1]].tokens < 20
    run = claim(tree.id)
    leaf = add_summary(tree.id, run, also, (11, 12))
    page = shown(owner_client, f"{tree.here}{leaf}/")
    assert f"· {previews[also[1]].tokens} tokens" in page


def test_somebody_elses_summary_is_not_found_in_ones_own_session(tree: Tree, owner_client: Client) -> None:
    other = Tree(User.objects.create_user("eve"))
    for address in (
        f"{tree.here}{other.left}/",
        f"{tree.here}rows/?under={other.left}",
        f"{tree.here}replies/{other.tried}/",
        f"{tree.here}{tree.left}/sources/{other.messages[0]}/",
        f"{tree.here}{tree.left}/sources/{tree.messages[5]}/",
    ):
        assert owner_client.get(address).status_code == 404, address
    page = shown(owner_client, f"{tree.here}?id={other.left}")
    assert "There is no summary" in page
    assert other.id not in owner_client.get(f"/summaries/{other.left}/").content.decode()


def test_the_drawing_has_every_summary_by_depth_with_what_it_was_made_of(tree: Tree, owner_client: Client) -> None:
    values = drawn(owner_client, tree)
    assert values["id"] == [tree.left, tree.right, tree.top]
    assert (values["depth"], values["first"], values["span"]) == ([0, 0, 1], [1, 5, 1], [3, 1, 5])
    assert values["level"] == [1, 3, 1]
    assert values["marks"] == [0, 0, ACTIVE + CONDENSED]
    assert values["edges"] == [2, 2, 0, 1]
    assert (values["newest"], values["verbatim"], values["messages"]) == ([], [[7, 8]], 8)


def test_a_revision_takes_the_drawn_place_and_marks_what_stands_above_it(tree: Tree, owner_client: Client) -> None:
    newer = revise(tree.id, tree.left, tree.messages[:4])
    values = drawn(owner_client, tree)
    place = values["id"].index
    assert values["newest"] == [place(tree.left), place(newer)]
    assert values["marks"][place(tree.left)] == SUPERSEDED
    assert values["marks"][place(tree.top)] == ACTIVE + CONDENSED + STALE
    assert values["edges"] == [place(tree.top), 2, place(newer), place(tree.right)]


def test_the_browser_keeps_the_drawing_until_something_happens(tree: Tree, owner_client: Client) -> None:
    address = f"{tree.here}drawing.json"
    first = owner_client.get(address)
    assert "private" in first["Cache-Control"]
    known = {"If-None-Match": first["ETag"]}
    assert owner_client.get(address, headers=known).status_code == 304
    add_turn(tree.id, "And now?")
    assert owner_client.get(address, headers=known).status_code == 200


@pytest.mark.slow
def test_ten_thousand_summaries_are_few_bytes_and_no_more_queries(
    tree: Tree, owner: User, owner_client: Client
) -> None:
    many = Tree(owner)
    many.id = add_session(owner)
    many.here = f"/sessions/{many.id}/inspect/summaries/"
    ids = add_many_summaries(many.id)
    assert len(ids) == TOTAL
    answer = owner_client.get(f"{many.here}drawing.json", headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert len(answer.content) < 400_000
    values = drawn(owner_client, many)
    assert {len(values[name]) for name in ("id", "depth", "first", "span", "count", "level", "tokens", "marks")} == {
        TOTAL
    }
    assert len(values["edges"]) == 2 * (TOTAL - LEAVES) + TOTAL - 1
    for part in ("drawing.json", "", "?view=table", "rows/"):
        assert queries_of(owner_client, f"{many.here}{part}") <= queries_of(owner_client, f"{tree.here}{part}"), part
    assert queries_of(owner_client, f"{many.here}{ids[-1]}/") <= queries_of(owner_client, f"{tree.here}{tree.top}/")
    assert len(shown(owner_client, f"{many.here}?view=table")) < 60_000


def test_what_is_chosen_is_kept_from_view_to_view(tree: Tree, owner_client: Client) -> None:
    page = shown(owner_client, f"{tree.here}?id={tree.left}")
    assert f'href="?view=table&amp;id={tree.left}"' in page
    assert "The tides." in page
    assert 'href="?view=drawing&amp;seq=3"' in shown(owner_client, f"{tree.here}?view=table&seq=3")


def test_a_session_without_summaries_says_what_will_stand_there(owner: User, owner_client: Client) -> None:
    session_id = add_session(owner)
    page = shown(owner_client, f"/sessions/{session_id}/inspect/summaries/")
    assert "No summaries yet." in page
    assert "<canvas" not in page
    values = owner_client.get(f"/sessions/{session_id}/inspect/summaries/drawing.json").json()
    assert (values["id"], values["edges"], values["messages"]) == ([], [], 0)


def test_the_table_opens_level_by_level_down_to_the_messages(tree: Tree, owner_client: Client) -> None:
    roots = shown(owner_client, f"{tree.here}?view=table")
    assert f'data-id="{tree.top}"' in roots
    assert f'data-id="{tree.left}"' not in roots
    assert "7–8" in roots  # in the context as they are
    under = shown(owner_client, f"{tree.here}rows/?under={tree.top}&level=2")
    assert under.index(tree.left) < under.index(tree.right)
    assert 'aria-level="2"' in under
    assert "3, excerpt" in under
    messages = shown(owner_client, f"{tree.here}rows/?under={tree.left}&level=3")
    assert messages.count("data-message=") == 4
    assert "Question 0" in messages


def test_a_long_level_of_the_table_comes_in_pages(owner: User, owner_client: Client) -> None:
    session_id = add_session(owner)
    here = f"/sessions/{session_id}/inspect/summaries/"
    run = claim(session_id)
    messages = [id for number in range(101) for id in add_turn(session_id, f"Question {number}")]
    for number in range(101):
        add_summary(session_id, run, messages[2 * number : 2 * number + 2], (2 * number + 1, 2 * number + 2))
    first = shown(owner_client, f"{here}rows/")
    assert first.count("data-id=") == 100
    assert "offset=100" in first
    rest = shown(owner_client, f"{here}rows/?offset=100")
    assert rest.count("data-id=") == 1
    assert 'aria-posinset="101"' in rest
    assert "data-more" not in rest


def test_large_numbers_are_set_in_groups_of_three(owner: User, owner_client: Client) -> None:
    session_id = add_session(owner)
    messages = add_turn(session_id, "How high?")
    summary_id = add_summary(session_id, claim(session_id), messages, (1, 12_000), count=12_000)
    page = shown(owner_client, f"/sessions/{session_id}/inspect/summaries/{summary_id}/")
    assert "Leaf summary of messages 1–12,000" in page
    assert "12,000 messages, kept word for word" in page
    assert not re.search(r">[^<]*12000", page)
    assert "1–12,000" in shown(owner_client, f"/sessions/{session_id}/inspect/summaries/rows/")


def test_a_summary_says_how_it_was_written_and_where_it_stands(tree: Tree, owner_client: Client) -> None:
    add_try(tree.id, claim(tree.id), tree.right, level=2, text="A reply of no use.", reason="not_smaller")
    page = shown(owner_client, f"{tree.here}{tree.right}/")
    assert "level 3, automatic excerpt" in page
    assert "rejected: not_smaller" in page
    assert "soft compaction" in page
    assert f"{tree.here}{tree.top}/" in page  # it stands under it
    tried = SummaryTry.objects.get(reason="not_smaller").id
    assert texts_in(shown(owner_client, f"{tree.here}replies/{tried}/"), "pre") == ["A reply of no use."]
    top = shown(owner_client, f"{tree.here}{tree.top}/")
    assert "in the context now" in top
    assert "Leaf summary of messages 1–4" in top


def test_a_summary_is_a_part_of_a_page_too_and_has_one_address(tree: Tree, owner_client: Client) -> None:
    assert owner_client.get(f"/summaries/{tree.left}/").url == f"{tree.here}{tree.left}/"
    for address in (f"/summaries/{tree.left}/", f"{tree.here}{tree.left}/"):
        part = owner_client.get(address, headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in part
        assert "The tides." in part


def test_the_originals_are_one_step_away(tree: Tree, owner_client: Client) -> None:
    assert "Question 0" in shown(owner_client, f"{tree.here}{tree.left}/sources/{tree.messages[0]}/")
    assert "The tides." in shown(owner_client, f"{tree.here}{tree.top}/sources/{tree.left}/")
    page = shown(owner_client, f"{tree.here}messages/3/")
    assert "in the context as a summary" in page
    assert page.index(tree.left) < page.index(tree.top)
    assert "Question 1" in page
    assert "No summary covers this message." in shown(owner_client, f"{tree.here}messages/8/")


def test_sources_come_in_pages(owner: User, owner_client: Client) -> None:
    session_id = add_session(owner)
    messages = [id for number in range(30) for id in add_turn(session_id, f"Question {number}")]
    leaf = add_summary(session_id, claim(session_id), messages, (1, 60))
    here = f"/sessions/{session_id}/inspect/summaries/{leaf}/"
    assert shown(owner_client, here).count('class="source ') == 50
    rest = shown(owner_client, f"{here}sources/?offset=50")
    assert rest.count('class="source ') == 10
    assert "Message 50" not in rest
    assert "Message 60" in rest


def test_hostile_texts_are_texts(owner: User, owner_client: Client) -> None:
    tree = Tree(owner, text=HOSTILE)
    add_try(tree.id, claim(tree.id), tree.left, text=HOSTILE, reason="echo")
    tried = SummaryTry.objects.get(reason="echo").id
    for address in (*tree.addresses(), f"{tree.here}replies/{tried}/"):
        page = shown(owner_client, address)
        assert "<script>alert" not in page, address
        assert 'href="javascript' not in page, address
        assert "\u202e" not in page, address


@pytest.mark.parametrize(
    "address",
    [
        "?view=nothing&id=nothing&seq=2",
        "?id=%00",
        f"?id={quote(chr(0xD800), errors='surrogatepass')}",
        f"?seq={10**30}",
        "?seq=-1",
        "?from=nan&to=1e999",
        "rows/?under=%00",
        f"rows/?offset={10**30}",
        "rows/?offset=-1",
        f"rows/?level={10**30}",
        f"messages/{10**30}/",
        "messages/0/",
        "%00/",
        "%ED%A0%80/sources/",
        "replies/%00/",
    ],
)
def test_nonsense_in_an_address_is_an_answer_not_a_crash(tree: Tree, owner_client: Client, address: str) -> None:
    assert owner_client.get(f"{tree.here}{address}").status_code in (200, 404, 422)
    assert owner_client.get(f"{tree.here}{tree.left}/sources/?offset={10**30}").status_code in (200, 422)

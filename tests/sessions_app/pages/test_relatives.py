"""How pages name the sessions around one: a tool's card leads down, the sub-agent's page up, the list says whose it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.messages import TextPart, ToolPart, ToolState
from mnesis_core.records import FORK, SUB_AGENT, TurnState
from sessions_app.record import message_queries
from tests.support.record.talks import HOSTILE, new_session, say

pytestmark = pytest.mark.django_db
Ask = Callable[..., str]


@pytest.fixture
def family(reader: User) -> tuple[str, str]:
    """A session whose tool call launched another one."""
    parent = new_session(reader, title=f"Harbour {HOSTILE}")
    part = ToolPart(
        tool_name="task", tool_call_id="c", input='{"prompt": "Look"}', output="Seen.", state=ToolState.COMPLETED
    )
    say(parent, ("user", [TextPart(text="q")]), ("assistant", [part]))
    part_id = message_queries.find_part_of_call(parent, "c")
    child = new_session(
        reader, title=f"Look {HOSTILE}", parent_id=parent, parent_part_id=part_id, origin=SUB_AGENT, agent="explore"
    )
    say(child, ("user", [TextPart(text="Look")]), state=TurnState.FAILED, error_code="MODEL_UNREACHABLE")
    return parent, child


def test_the_card_of_a_task_leads_to_its_session_and_says_how_that_is(ask: Ask, family: tuple[str, str]) -> None:
    parent, child = family
    page = ask(f"/sessions/{parent}/")
    card = page[page.index('<ul class="launched') :]
    assert f'href="/sessions/{child}/"' in card
    assert card.index("badge-failed") < card.index("</ul>")
    assert HOSTILE not in page


def test_a_sub_agents_page_leads_up_and_calls_nothing_imported(ask: Ask, family: tuple[str, str]) -> None:
    parent, child = family
    page = ask(f"/sessions/{child}/")
    assert "Read-only sub-agent of" in " ".join(page.split())
    assert f'href="/sessions/{parent}/"' in page
    assert "Imported" not in page
    assert HOSTILE not in page


def test_the_list_shows_sub_agents_when_asked_and_names_their_parent(ask: Ask, family: tuple[str, str]) -> None:
    parent, child = family
    own = ask("/sessions/rows/")
    assert f'id="{parent}"' in own
    assert f'id="{child}"' not in own
    page = ask("/sessions/rows/", sub_agents="1")
    row = page[page.index(f'id="{child}"') :]
    assert f'sub-agent of <a href="/sessions/{parent}/">' in row


def test_a_fork_beside_a_sub_agent_of_the_same_session_is_called_a_fork(
    ask: Ask, reader: User, family: tuple[str, str]
) -> None:
    parent, _child = family
    fork = new_session(reader, title="Another way", parent_id=parent, origin=FORK)
    page = ask("/sessions/rows/", sub_agents="1")
    row = page[page.index(f'id="{fork}"') :].split("</li>")[0]
    assert f'fork of <a href="/sessions/{parent}/">' in row
    assert "sub-agent" not in row


@pytest.mark.parametrize(
    ("link", "agent", "word"), [("sub_agent", "sub-agent", "sub-agent"), ("fork", "default", "fork")]
)
def test_an_imported_session_says_how_it_comes_from_its_parent(
    ask: Ask, reader: User, link: str, agent: str, word: str
) -> None:
    parent = new_session(reader, title="Parent")
    imported = {"origin": "import:chatgpt", "agent": agent, "labels": {"link": link}}
    child = new_session(reader, title="Child", parent_id=parent, **imported)
    page = ask("/sessions/rows/", sub_agents="1")
    assert f'{word} of <a href="/sessions/{parent}/">' in page[page.index(f'id="{child}"') :]
    assert (f'id="{child}"' in ask("/sessions/rows/")) == (word == "fork")


def test_the_api_lists_sub_agents_alone_or_leaves_them_out(browser: Client, family: tuple[str, str]) -> None:
    parent, child = family

    def listed(**asked: str) -> set[str]:
        return {item["id"] for item in browser.get("/api/sessions", asked).json()["items"]}

    assert listed() == {parent, child}
    assert listed(sub_agents="true") == {child}
    assert listed(sub_agents="false") == {parent}

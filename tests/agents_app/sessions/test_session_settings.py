"""What a session's settings change: what its model is told, and the page on which its owner says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents_app.tools import registry
from agents_app.turns import lifecycle
from agents_app.turns.session_settings import with_values
from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import SessionRecord
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from tests.support.people.story import calls_rebuilt, say, tool_call

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, slots=True)
class Page:
    """The settings of a session in its owner's browser."""

    client: Client
    session: SessionRecord

    @property
    def address(self) -> str:
        return reverse("session-settings", args=[self.session.id])

    @property
    def config(self) -> dict[str, Any]:
        return load_session(self.session.id).config

    def get(self) -> Any:
        return self.client.get(self.address)

    def save(self, **changed: Any) -> Any:
        """Post the form as it is shown, but for what is changed."""
        form = self.get().context["form"]
        shown = {field.name: field.value() for field in form}
        sent = {name: value for name, value in (shown | changed).items() if value not in (None, False, "")}
        return self.client.post(self.address, sent)


def told(request: Request) -> str:
    """The system prompt of a request; empty if it has none."""
    first = request.payload["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def configure(session: SessionRecord, **config: Any) -> None:
    lifecycle.update_session(session.id, owner_id=session.owner_id, config=config)


@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
async def test_changed_instructions_count_from_the_next_turn_and_past_prompts_keep_theirs(
    alice: Any, script: Callable[..., ScriptedModel]
) -> None:
    model = script("one", "two", "three", "four")
    session = await db(lifecycle.create_session, owner=alice, system_prompt="Be brief.")
    await say(session, "Go")
    for config in ({"instructions": "Answer in rhyme."}, {"instructions": ""}, {}):
        await db(configure, session, **config)
        await say(session, "Go on")
    assert [told(request) for request in model.requests] == ["Be brief.", "Answer in rhyme.", "", "Be brief."]
    assert len(await calls_rebuilt(session)) == 4


@pytest.mark.django_db(transaction=True)
async def test_a_sub_agent_is_told_what_it_is_there_for_and_not_what_its_session_is_told(
    alice: Any, script: Callable[..., ScriptedModel]
) -> None:
    model = script(tool_call("task", prompt="Count"), "Three.", "It is three.")
    config = {"instructions": "Answer in rhyme."}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    await say(session, "Go")
    assert [told(request) == "Answer in rhyme." for request in model.requests] == [True, False, True]


def test_instructions_have_a_bound(session: SessionRecord) -> None:
    configure(session, instructions="x" * LONGEST_INSTRUCTIONS)
    with pytest.raises(InvalidRequest) as refused:
        configure(session, instructions="x" * (LONGEST_INSTRUCTIONS + 1))
    assert refused.value.details["field"] == "instructions"


def test_a_place_is_changed_and_left_to_the_site_and_nothing_else_moves() -> None:
    config = {"turn": {"max_steps": 3, "tools": ["a"]}, "labels": 1}
    changed = with_values(config, {"turn.max_steps": None, "limits.session.tokens": 5, "instructions": ""})
    assert changed == {"turn": {"tools": ["a"]}, "labels": 1, "limits": {"session": {"tokens": 5}}, "instructions": ""}
    assert with_values(changed, {"limits.session.tokens": None, "turn.tools": None}) == {
        "labels": 1,
        "instructions": "",
    }
    assert with_values({"turn": "odd"}, {"turn.max_steps": 1}) == {"turn": {"max_steps": 1}}


@pytest.fixture
def page(client: Client, alice: Any, session: SessionRecord) -> Page:
    client.force_login(alice)
    return Page(client, session)


def test_the_form_changes_what_it_shows_and_keeps_the_rest(page: Page) -> None:
    configure(page.session, compaction={"auto": False}, parameters={"seed": 7})
    answer = page.save(
        instructions="Be kind.\r\nAlways.", effort="high", temperature="0", max_steps="9", cost="0.25",
        tools_from="own", tools=["calculator", "lcm_read"], read_only="on",
    )  # fmt: skip
    assert answer.status_code == 302
    assert page.config == {
        "instructions": "Be kind.\nAlways.",
        "compaction": {"auto": False},
        "parameters": {"seed": 7, "effort": "high", "temperature": 0.0},
        "turn": {"max_steps": 9, "tools": ["calculator", "lcm_read"], "read_only": True},
        "limits": {"session": {"cost_micros": 250_000}},
    }
    assert page.save().status_code == 302  # what the page shows, unchanged
    assert page.config["limits"] == {"session": {"cost_micros": 250_000}}
    page.save(instructions="", effort="", temperature="", max_steps="", cost="", tools_from="site", read_only="")
    assert page.config == {"compaction": {"auto": False}, "parameters": {"seed": 7}}


def test_a_tool_that_has_gone_is_shown_and_said_and_can_be_left_out(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(page.session, turn={"tools": ["calculator", "lcm_read"]})
    monkeypatch.delitem(registry._TOOLS, "lcm_read")
    assert "Not available any more." in page.get().content.decode()
    refused = page.save()
    assert "no tool is called lcm_read" in refused.content.decode()
    assert page.save(tools=["calculator"]).status_code == 302
    assert page.config == {"turn": {"tools": ["calculator"]}}


def test_tools_that_ask_first_are_chosen(page: Page) -> None:
    page.save(ask_before=["calculator"])
    assert page.config == {"turn": {"ask_before": ["calculator"]}}
    page.save(ask_before=[])
    assert page.config == {}


@pytest.fixture
def asking_site(settings: Any, tmp_path: Path) -> Iterator[None]:
    """The calculator asks first in every session."""
    file = tmp_path / "config.toml"
    file.write_text('[turn]\nask_before = ["calculator"]\n')
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


@pytest.mark.usefixtures("asking_site")
def test_what_the_site_asks_about_is_shown_and_may_be_left_out(page: Page) -> None:
    assert page.save(max_steps="9").status_code == 302
    assert page.config == {"turn": {"max_steps": 9}}
    page.save(ask_before=[])
    assert page.config == {"turn": {"max_steps": 9, "ask_before": []}}


def test_no_tools_at_all_stay_none_when_the_form_is_saved_again(page: Page) -> None:
    assert page.save(tools_from="own", tools=[]).status_code == 302
    assert page.save(max_steps="9").status_code == 302
    assert page.config == {"turn": {"tools": [], "max_steps": 9}}


def test_values_of_an_import_that_nobody_understands_are_shown_as_what_they_come_to(page: Page) -> None:
    odd = {"turn": {"tools": 5, "max_steps": {}}, "limits": {"session": {"cost_micros": "x"}}, "instructions": 7}
    odd |= {"parameters": {"effort": [1], "provider_tools": 3, "temperature": "warm"}}
    with change(page.session.id) as record:
        session_store.update_session(record, config=odd)
    assert page.get().status_code == 200
    assert page.save(instructions="Be kind.").status_code == 302
    assert page.config["instructions"] == "Be kind."


BAD = [
    ("instructions", "x" * (LONGEST_INSTRUCTIONS + 1)),
    ("instructions", "a\x00b"),
    ("effort", "endless"),
    ("temperature", "nan"),
    ("temperature", "3"),
    ("max_steps", "0"),
    ("max_steps", "1" * 5_000),
    ("tokens", "-1"),
    ("cost", "1e400"),
    ("cost", "0.0000001"),
    ("tools", ["no_such_tool"]),
    ("tools_from", "elsewhere"),
    ("ask_before", ["no_such_tool"]),
    ("provider_tools", ["rm"]),
]


@pytest.mark.slow
def test_bad_values_are_refused_in_words_and_change_nothing(page: Page) -> None:
    for name, value in BAD:
        answer = page.save(**{name: value})
        assert answer.status_code == 200
        assert "Nothing has been saved." in answer.content.decode()
        assert answer.context["form"].errors[name], (name, value)
    assert page.config == {}


def test_another_persons_settings_are_not_found(page: Page, bob: Any) -> None:
    page.client.force_login(bob)
    assert page.get().status_code == 404
    assert page.client.post(page.address, {"tools_from": "site", "instructions": "Obey."}).status_code == 404
    assert page.config == {}

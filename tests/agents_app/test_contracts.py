"""``docs/contracts.md`` names every contract of a session, and tests that there are; and what no other test shows of it."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agents_app.turns import lifecycle
from mnesis_core.records import SessionRecord
from sessions_app.api import SessionList, session_page
from sessions_app.database.threads import db
from tests.support.documents.named_tests import missing_tests, named_tests
from tests.support.people.story import say

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| C(\d+) \| .+ \| (.+?) \| (.*?) ?\|$", (ROOT / "docs/contracts.md").read_text(), re.MULTILINE)
SAID = {"66", "68"}
"""What is not done, and said in the documentation."""


def test_every_contract_has_a_row() -> None:
    assert [number for number, _, _ in ROWS] == [str(number) for number in range(1, 81)]


def test_the_tests_that_the_rows_name_are_there() -> None:
    for number, state, tests in ROWS:
        assert re.fullmatch(r"met|as reconciled \(.+\)", state), number
        assert bool(named_tests(tests)) is (number not in SAID), number
    assert not missing_tests(tests for _, _, tests in ROWS)


def test_what_is_not_done_is_said() -> None:
    security = (ROOT / "docs/operations.md").read_text().partition("## Security")[2]
    assert "Nothing is encrypted at rest" in security
    assert "Nothing is filtered out of summaries" in security


def test_a_turn_is_built_and_a_model_made_in_one_place() -> None:
    apps = ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app", "mnesis_site")
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text() for app in apps for path in (ROOT / app).rglob("*.py")
    }

    def naming(pattern: str) -> set[str]:
        return {path for path, text in sources.items() if re.search(pattern, text)}

    assert naming(r"\bModelCalls\(") == {"agents_app/turns/loop.py"}
    assert naming(r"agents_app\.turns(\.loop import| import .*\bloop\b)") == {"agents_app/turns/runner.py"}
    assert naming(r"MODEL_FACTORY") == {"mnesis_site/settings.py", "sessions_app/conf.py"}


@pytest.mark.both_databases
def test_creates_at_once_keep_their_own_settings(alice: User) -> None:
    def create(number: int) -> tuple[int, SessionRecord]:
        config = {"compaction": {"protect_turns": number + 2}}
        made = lifecycle.create_session(owner=alice, system_prompt=f"You are {number}.", config=config)
        connection.close()
        return number, made

    with ThreadPoolExecutor(4) as threads:
        for number, made in threads.map(create, range(8)):
            assert made.system_prompt == f"You are {number}."
            assert made.config == {"compaction": {"protect_turns": number + 2}}


async def test_the_list_is_light_and_current_after_each_turn(session: SessionRecord, script: Any) -> None:
    async def listed() -> dict[str, Any]:
        page = await db(
            session_page,
            owner_id=session.owner_id,
            archived=None,
            label=None,
            q="",
            parent_id=None,
            limit=50,
            cursor=None,
        )
        [item] = SessionList.model_validate(page).model_dump()["items"]
        return dict(item)

    script("One.", "Two.")
    for number in (1, 2):
        await say(session, "Count")
        item = await listed()
        assert (item["id"], item["turn_count"], item["message_count"]) == (session.id, number, 2 * number)
        assert not {"billing", "context", "system_prompt"} & set(item)

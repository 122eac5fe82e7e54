"""A site's own prompts are what its models are asked, and each summary says which one it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_app.compact import compact_now
from compaction_app.queries import list_summaries
from mnesis_core.compaction.requests import SHIPPED_FOLDER
from sessions_app.conf import site_prompts
from tests.compaction_app.test_compaction import add_turns, model_of


@pytest.fixture
def folder(tmp_path, settings):
    settings.MNESIS = settings.MNESIS | {"PROMPT_FOLDER": str(tmp_path)}
    site_prompts.cache_clear()
    yield tmp_path
    site_prompts.cache_clear()


def test_a_summary_names_the_sites_own_prompt(session, script, folder: Path):
    shipped = (SHIPPED_FOLDER / "level1.md").read_text()
    own = shipped.replace("version: 2", "version: harbour-3").replace("- Invent nothing.", "- Write it in rhymes.")
    (folder / "level1.md").write_text(own)
    model = script(model_of("- A summary."))
    add_turns(session, 8)
    compact_now(session.id)
    assert "Write it in rhymes." in str(model.requests[0].payload["messages"][0]["content"])
    assert [summary.prompt_version for summary in list_summaries(session.id)] == ["level1.harbour-3"]

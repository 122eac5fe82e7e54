"""The prompts of compaction are the seed's in sections, have versions, and a site may have its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mnesis_core.compaction.requests import SHIPPED, SHIPPED_FOLDER, read_prompts

SECTIONS = (
    "Goal",
    "Key Instructions & Constraints",
    "Discoveries & Findings",
    "Completed Work",
    "In Progress",
    "Remaining Work",
    "Relevant Files & Directories",
    "Other Important Context",
)
"""Of seed 000, "Level 1 - Structured LLM summary"."""


def test_the_first_level_asks_for_the_seeds_sections_and_the_second_for_its_fields() -> None:
    for prompt in (SHIPPED.level1, SHIPPED.condense):
        assert tuple(re.findall(r"^## (.+)$", prompt.system, re.MULTILINE)) == SECTIONS
    for prompt in (SHIPPED.level2, SHIPPED.condense2):
        assert re.findall(r"^([A-Z]+):", prompt.system, re.MULTILINE) == [
            "GOAL",
            "CONSTRAINTS",
            "FILES",
            "NEXT",
            "CONTEXT",
        ]


def test_a_site_replaces_prompts_by_files_of_their_names(tmp_path: Path) -> None:
    own = (SHIPPED_FOLDER / "level2.md").read_text().replace("version: 1", "version: harbour-3").replace("GOAL", "AIM")
    (tmp_path / "level2.md").write_text(own)
    (tmp_path / "README").write_text("ours")
    prompts = read_prompts(tmp_path)
    assert (prompts.level2.version, prompts.level1) == ("level2.harbour-3", SHIPPED.level1)
    assert "AIM: what the user wants" in prompts.level2.system


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "level1.md").write_bytes(b"version: \xff")
    with pytest.raises(ValueError, match="is not UTF-8"):
        read_prompts(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("level9.md", "", "does not replace a prompt", id="a name that is no prompt's"),
        pytest.param("level1.md", "Summarise!", "is not a prompt", id="no shape"),
        pytest.param("level1.md", ("MNESIS-SUMMARISE", "…"), "with MNESIS-SUMMARISE", id="without the marker"),
        pytest.param("level1.md", ("{{target}}", "2000"), "with {{target}}", id="without a target"),
        pytest.param("level1.md", ("Goal", "Aim"), "another version", id="another text of the same version"),
    ],
)
def test_a_file_that_is_no_prompt_is_refused(
    tmp_path: Path, name: str, text: str | tuple[str, str], message: str
) -> None:
    whole_text = text if isinstance(text, str) else (SHIPPED_FOLDER / name).read_text().replace(*text)
    (tmp_path / name).write_text(whole_text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_prompts(tmp_path)

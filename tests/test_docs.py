"""What the documentation names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
"""To another file, not to another site."""
FOLDERS = (
    *("mnesis_core", "sessions_app", "compaction_app", "files_app", "agents_app", "audit_app", "mnesis_site"),
    *("clients", "tests", "benchmarks", "docs", "static", "templates"),
)
PATH = re.compile(rf"(?<![\w/.])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*]")
EXAMPLES = {
    *("mnesis_core/files/kinds/ini.py", "tests/core/files/kinds/test_ini.py", "agents_app/tools/words.py"),
    *("mnesis_core/transcripts/plain_chat.py", "tests/core/transcripts/test_transcripts_plain_chat.py"),
    *("tests/core/providers/test_", "sessions_app/session/calls.html"),
    "sessions_app/consumers.py",  # the design's, which the architecture says is elsewhere
}
"""Files that a how-to tells the reader to write, or that are not there and said so."""


def is_there(path: str) -> bool:
    """Whether a path names a file, a module, a template or a function in a module."""
    stem = path.rpartition(".")[0]
    candidates = (path, f"{path}.py", f"{stem}.py", f"templates/{path}")
    return any(list(ROOT.glob(candidate)) for candidate in candidates)


def test_every_path_in_the_documentation_exists() -> None:
    named = {(page.name, path) for page in PAGES for path in PATH.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 100
    assert not sorted((page, path) for page, path in named if path not in EXAMPLES and not is_there(path))


def test_every_link_in_the_documentation_leads_to_a_file() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md"]
    linked = [(page, target) for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert len(linked) > 100
    assert [(page.name, target) for page, target in linked if not (page.parent / target).exists()] == []

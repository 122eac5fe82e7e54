"""Defects 26, 30, 34 and 39 of the reference library: downloads, guesses, dead settings, a process that never ends."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from mnesis_core.config import Config
from mnesis_core.providers.litellm_ import stated_limits
from tests.support.sites.site import environment_for
from tests.support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("mnesis_core", "sessions_app", "compaction_app", "files_app", "agents_app", "audit_app", "mnesis_site")

ESTIMATES = """
import socket, sys
socket.socket = socket.getaddrinfo = None
from mnesis_core.llm.tokens import estimate_text
assert all(estimate_text(text * 50) > 50 for text in ("word ", "def f(x):", "港口办公室", '{"a": 1}'))
assert not {"tiktoken", "tokenizers", "litellm", "httpx"} & set(sys.modules)
"""
LEAVES = """
import asyncio, django
django.setup()
from agents_app.turns import lifecycle
from django.contrib.auth import get_user_model
from django.core.management import call_command

call_command("migrate", verbosity=0)
session = lifecycle.create_session(owner=get_user_model().objects.create_user("ada"))

async def begin():
    await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="!slow 1000 !long 1000")

asyncio.run(begin())
print("left", session.id)
"""


def run(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    environment = environment_for(place, DATABASE_URL=f"sqlite:///{place / 'site.sqlite3'}")
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_an_estimate_needs_no_network_and_no_tokeniser(tmp_path):
    """Defect 26: without a network each estimate tried, and waited, to download a tokeniser again."""
    done = run(ESTIMATES, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai/turbo4", None),
        ("openai/foo1bar", None),
        ("groq/llama-turbo3", None),
        ("openai/not-gpt-4o-at-all", None),
        ("openai/my-claude-killer", None),
        ("openai/gpt-5", 272_000),
        ("xai/grok-4", 256_000),
        ("gemini/gemini-2.5-pro", 1_048_576),
    ],
)
def test_a_models_window_is_not_guessed_from_letters_in_its_name(name: str, window: int | None):
    """Defect 30: whatever had "o1" in its name was of a series of its own, and every new model had 128,000 tokens."""
    stated = stated_limits(name)
    assert (stated and stated.context_window) == window


def settings_of(config: Any, path: str = "") -> Iterator[tuple[str, str]]:
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from settings_of(value, f"{path}{item.name}.")
        else:
            yield f"{path}{item.name}", item.name


@pytest.mark.slow
def test_every_setting_is_read_by_something():
    """Defect 34: two settings of files and a field of every result had no effect at all."""
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "config.py"]
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    read |= {f"prices.{item.name}" for item in fields(Config().prices)}  # asdict reads them
    assert [where for where, name in settings_of(Config()) if name not in read and where not in read] == []


@pytest.mark.slow
def test_a_process_ends_though_nobody_closed_its_session(tmp_path):
    """Defect 39: a session that was not closed kept the interpreter alive for ever."""
    done = run(LEAVES, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("left sess_")

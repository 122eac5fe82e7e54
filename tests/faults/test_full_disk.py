"""The disk is full: a write is refused, nothing that was acknowledged is lost, and with room again it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.children import run_child
from tests.support.writers import ANSWERED


@pytest.mark.parametrize("room", [400_000, pytest.param(4_500_000, marks=pytest.mark.soak)])
def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path, room: int) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/mnesis.sqlite3", "MNESIS_DATA_DIR": str(tmp_path)}
    told = json.loads(run_child("tests.support.full_disk", room, seconds=60, **environment))
    assert told["refused"] == ["OperationalError: database or disk is full"] * 5
    assert (told["full"], told["after"]) == ([], [])
    assert told["answered"] > 1
    assert told["last"] == ANSWERED

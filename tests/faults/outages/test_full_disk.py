"""The disk is full: a write is refused, nothing that was acknowledged is lost, and with room again it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.processes.children import run_child
from tests.support.processes.recorded_writers import WRITERS

pytestmark = pytest.mark.slow


# The larger one is full only after the log was moved into the database for the first time.
@pytest.mark.parametrize("room", [1_500_000, pytest.param(5_000_000, marks=pytest.mark.soak)])
def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path, room: int) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/new.sqlite3", "MNESIS_DATA_DIR": str(tmp_path)}
    printed = run_child("tests.support.processes.full_disk", tmp_path / "mnesis.sqlite3", room, **environment)
    told = json.loads(printed)
    assert told["when_full"] == []
    assert told["with_room"] == []
    assert told["answered"] > 1
    assert told["answered_with_room"] == WRITERS
    assert {problem.partition(":")[0] for problem in told["refused"]} == {"OperationalError"}

"""Defect 35 of the reference library: of many files nothing was said but their first lines."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from files_app.intake import explore_file, keep_file

SAID = {
    "tide.rs": (
        b"pub struct Gauge { metres: f64 }\nimpl Gauge { pub fn read(&self) -> f64 { self.metres } }\n",
        "read",
    ),
    "tide.go": (b"package tide\n\nfunc ReadGauge(place string) float64 { return 4.1 }\n", "ReadGauge"),
    "Tide.java": (b"public class Tide { public double readGauge() { return 4.1; } }\n", "readGauge"),
    "tide.sql": (b"CREATE TABLE gauges (id int, place text);\nINSERT INTO gauges VALUES (1, 'Portwell');\n", "gauges"),
    "tide.html": (b"<!doctype html><title>Tides of Portwell</title><h1>High water</h1><p>At noon.</p>", "High water"),
    "tide.jsonc": (b'{\n  // where\n  "place": "Portwell", "metres": [4.1, 3.2],\n}\n', "place"),
    "tide.csv": (b'place,said\nPortwell,"high, and\nrising"\nSandbar,low\n', "2 rows"),
}


def explored(session, name: str, data: bytes):
    file = keep_file(session.id, owner_id=session.owner_id, path=name, chunks=[data])
    return explore_file(file.id, owner_id=session.owner_id)


@pytest.mark.parametrize("name", SAID)
def test_what_a_file_holds_is_said_and_not_only_how_it_begins(session, name):
    """Rust, Go, Java, SQL and HTML had five lines, JSON with comments an error, and quoted commas made columns."""
    data, said = SAID[name]
    file = explored(session, name, data)
    assert said in file.exploration_summary
    assert file.exploration["problem"] == ""


def test_of_bytes_it_is_said_what_they_are(session, tmp_path: Path):
    """A database was shown as five lines of rubbish."""
    with closing(sqlite3.connect(tmp_path / "tide.db")) as database:
        database.execute("CREATE TABLE gauges (place TEXT)")
        database.commit()
    file = explored(session, "tide.db", (tmp_path / "tide.db").read_bytes())
    assert "gauges" in file.exploration_summary
    assert "\N{REPLACEMENT CHARACTER}" not in file.exploration_summary


def test_the_same_content_under_another_name_is_another_kind(session):
    """The first name decided for all that came later."""
    table = explored(session, "tide.csv", b"place,metres\nPortwell,4\n")
    text = explored(session, "tide.txt", b"place,metres\nPortwell,4\n")
    assert (table.file_type, text.file_type) == ("csv", "text")
    assert table.exploration_summary != text.exploration_summary

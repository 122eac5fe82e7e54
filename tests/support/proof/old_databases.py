"""Small databases as the code of their day wrote them, in ``tests/data``: ``python -m tests.support.proof.old_databases``.

That writes the one of this day for SQLite or, with DATABASE_URL, for PostgreSQL. Those that are there are never written
again: every later version must be able to migrate and to prove them.
"""

from __future__ import annotations

import datetime
import json
import os
import sqlite3
import subprocess
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path

import django
import psycopg

from tests.support.sites.site import DATABASE, ROOT, environment_for, manage

FOLDER = ROOT / "tests" / "data"
DUMP = "mnesis.sql"
TITLE = "A record of old"
"""The session whose calls were really made: their prompts can be built again."""
STORY = "The keeper wrote the height of the tide into the log at every bell, and signed each line with her name. " * 12
TRANSCRIPT = [{"role": "user", "content": "How deep is the harbour?"}, {"role": "assistant", "content": "14 metres."}]


def old_databases(vendor: str) -> list[Path]:
    """Return the stored databases of one kind."""
    return sorted(FOLDER.glob(f"*.{'sqlite3' if vendor == 'sqlite' else 'sql'}.zip"))


def restore(stored: Path, directory: Path, database: dict[str, str]) -> None:
    """Put a stored database where a site with this data directory and this environment looks for its own."""
    with zipfile.ZipFile(stored) as archive:
        archive.extractall(directory)
    if url := database.get("DATABASE_URL"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((directory / DUMP).read_bytes())


def fill(directory: Path) -> None:
    """Fill an empty database with one of everything, by the commands and pages where there are any."""
    from django.core.management import call_command
    from django.test import Client

    from tests.support.record.sample_record import make_sample

    sample = make_sample()
    call_command("mcp_server", "add", "harbour", "--url", "https://tools.example/mcp")
    call_command("limit", "set", "ada", "day.tokens=5000000")
    call_command("run", STORY, title=TITLE)
    client = Client(headers={"Host": "localhost"})
    client.force_login(sample.ada)
    session = client.get("/api/sessions", {"q": TITLE}).json()["items"][0]["id"]
    log = directory / "log.txt"
    log.write_text("high water 06:12\nlow water 12:31\n")
    call_command("files", "add", session, str(log), "--as", "log.txt")
    for message in ('!tool lcm_grep {"pattern": "tide"}', STORY, "And the last bell?", STORY, "Thank you."):
        call_command("resume", session, message)
    asked = {"path": f"/api/sessions/{session}/compact", "data": {"wait": True}, "content_type": "application/json"}
    assert client.post(**asked).json()["summary_id"]
    call_command("resume", session, "What do you still know?")
    first = client.get(f"/api/sessions/{session}/messages").json()["items"][1]["id"]
    call_command("sessions", "fork", session, "--at", first)
    transcript = directory / "transcript.json"
    transcript.write_text(json.dumps({"messages": TRANSCRIPT}))
    call_command("import_transcript", str(transcript), "--user", "bob")
    call_command("verify", "--all", "--jobs", "1")


def main() -> None:
    """Write the database of this day."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from tests.support.sites.databases import site_database

    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory() as name, site_database("old") as database:
        directory = Path(name)
        environment = environment_for(directory, **database)
        assert manage("migrate", "-v0", environment=environment).returncode == 0
        code = f"from pathlib import Path; from tests.support.proof.old_databases import fill; fill(Path({name!r}))"
        done = manage("shell", "-v0", "-c", code, environment=environment)
        assert done.returncode == 0, done.stderr
        if url := database.get("DATABASE_URL"):
            command = ["pg_dump", "--inserts", "--rows-per-insert=100", "--no-owner", "--no-privileges", url]
            dump = subprocess.run(command, capture_output=True, check=True).stdout
            # Without what only psql understands.
            content = b"".join(line for line in dump.splitlines(keepends=True) if not line.startswith(b"\\"))
            content = content.replace(b"CREATE SCHEMA public;\n", b"")
        else:
            with closing(sqlite3.connect(directory / DATABASE)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("VACUUM")
            content = (directory / DATABASE).read_bytes()
        kind = "sql" if url else "sqlite3"
        stored = FOLDER / f"{today}.{kind}.zip"
        with zipfile.ZipFile(stored, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr(DUMP if url else DATABASE, content)
            for path in sorted((directory / "files").rglob("*")):
                archive.write(path, path.relative_to(directory))
    print(f"{stored.relative_to(ROOT)}: {stored.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""The whole suite on every database there is, and a loud word on what that left out: ``python -m tests.everything``.

PostgreSQL and Redis are looked for on this machine; TEST_POSTGRES_URL and TEST_REDIS_URL name others.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

import psycopg
import redis

NO_DATABASE = [
    *("tests/core", "tests/test_architecture.py", "tests/browser", "tests/mnesis_site/test_up.py"),
    *("tests/mnesis_site/test_processes.py", "tests/mnesis_site/test_server.py", "tests/mnesis_site/test_settings.py"),
    *("tests/sessions_app/test_rendering.py", "tests/sessions_app/test_loading.py", "tests/sessions_app/test_maths.py"),
    *("tests/defects/test_the_process.py", "tests/defects/test_the_table.py", "tests/files_app/test_s3.py"),
    *("tests/agents_app/test_mcp_calls.py", "tests/agents_app/test_models_of_litellm.py"),
    *("tests/agents_app/test_calling_tools.py", "tests/agents_app/operators/test_charts.py"),
    "tests/audit_app/test_move.py",  # goes from each to the other by itself
    *("tests/audit_app/test_progress.py", "tests/compaction_app/test_occupancy.py"),
    *("tests/journeys/test_ctrl_c.py", "tests/journeys/test_examples.py"),
    *("tests/journeys/test_importing.py", "tests/journeys/test_models_that_fail.py"),
    *("tests/journeys/test_history_without_end.py", "tests/faults/test_clients_that_do_not_read.py"),
    *("tests/faults/test_many_streams.py", "tests/faults/test_power_cut.py", "tests/faults/test_full_disk.py"),
    "tests/faults/test_large_uploads.py",
]
"""What cannot come out differently on another database, or brings its own."""
_WITHOUT = [f"--ignore={path}" for path in NO_DATABASE]
DROPPED = ("DATABASE_URL", "REDIS_URL", "PYTHONDONTWRITEBYTECODE")
"""Names of the environment that the suite does without: compiling anew makes each process that a test starts slower."""


def find_postgres() -> str:
    """The address of a PostgreSQL as a superuser, or nothing."""
    users = dict.fromkeys([getpass.getuser(), "postgres"])
    guesses = [f"postgresql://{user}@127.0.0.1:5432/postgres" for user in users]
    named = os.environ.get("TEST_POSTGRES_URL")
    return next((url for url in ([named] if named else guesses) if is_superuser(url)), "")


def is_superuser(url: str) -> bool:
    """Whether this address answers, to a role that can make databases and act as others."""
    question = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    try:
        with psycopg.connect(url, connect_timeout=3) as connection:
            return connection.execute(question).fetchone() == (True,)
    except psycopg.Error:
        return False


def find_redis() -> str:
    """The address of a Redis server, or nothing."""
    url = os.environ.get("TEST_REDIS_URL") or "redis://127.0.0.1:6379/0"
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=3) as client:
            client.ping()
    except redis.RedisError:
        return ""
    return url


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the suite that runs in a process of its own."""

    title: str
    process: subprocess.Popen[str]
    output: IO[str] | None
    """Where what it prints waits for its turn; ``None`` is the terminal."""


def start(title: str, arguments: list[str], environment: dict[str, str], *, is_shown: bool = False) -> Part:
    """Start a part of the suite."""
    output = None if is_shown else tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed where it is read
    command = [sys.executable, "-m", "pytest", *arguments, *sys.argv[1:]]
    process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True)
    return Part(title, process, output)


def finish(part: Part) -> int:
    """Wait for a part and print what it said."""
    print(f"\n=== {part.title} ===", flush=True)
    status = part.process.wait()
    if part.output is not None:
        with part.output as output:
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout)
    return status


def main() -> int:
    """Run the suite on SQLite and, beside it, on PostgreSQL with Redis where they are; say what was missing."""
    postgres, redis_server = find_postgres(), find_redis()
    shared = {name: value for name, value in os.environ.items() if name not in DROPPED}
    shared |= {"TEST_POSTGRES_URL": postgres, "TEST_REDIS_URL": redis_server}
    statuses = [finish(part) for part in start_all(shared)]
    missing = [name for name, url in (("PostgreSQL", postgres), ("Redis", redis_server)) if not url]
    return max(statuses) or report(missing)


def start_all(shared: dict[str, str]) -> list[Part]:
    """Start everything at the same time, since most of a test is waiting; what is on SQLite is seen as it runs."""
    if sys.argv[1:]:
        parts = [start("On SQLite", [], shared, is_shown=True)]
    else:
        parts = [
            start("The suite on SQLite", _WITHOUT, shared, is_shown=True),
            start("What no database can change", NO_DATABASE, shared),
        ]
    if url := shared["TEST_POSTGRES_URL"]:
        name = f"test_mnesis_{os.getpid()}"
        names = {"DATABASE_URL": url, "REDIS_URL": shared["TEST_REDIS_URL"], "MNESIS_TEST_DATABASE": name}
        parts.append(start("The suite on PostgreSQL", _WITHOUT, shared | names))
    return parts


def report(missing: list[str]) -> int:
    """Say loudly what was not there; with MNESIS_REQUIRE_ALL that is a failure."""
    if not missing:
        return 0
    names = " and ".join(missing)
    print(f"\n{'!' * 100}\nNOT TESTED: there is no {names} here, so everything on it was skipped (listed above).")
    print(f"Start one on this machine, or name it: TEST_POSTGRES_URL, TEST_REDIS_URL.\n{'!' * 100}", flush=True)
    return 1 if os.environ.get("MNESIS_REQUIRE_ALL") else 0


if __name__ == "__main__":
    sys.exit(main())

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
from typing import IO

import psycopg
import redis

NO_DATABASE = ["tests/core", "tests/test_architecture.py", "tests/browser", "tests/mnesis_site/test_up.py"]
"""What cannot come out differently on another database, or brings its own."""


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


def start_pytest(arguments: list[str], environment: dict[str, str], output: IO[str] | None) -> subprocess.Popen[str]:
    """Start the suite; into a file, or to the terminal."""
    command = [sys.executable, "-m", "pytest", *arguments, *sys.argv[1:]]
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True)


def main() -> int:
    """Run the suite on SQLite and, beside it, on PostgreSQL with Redis where they are; say what was missing."""
    postgres, redis_server = find_postgres(), find_redis()
    shared = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    shared |= {"TEST_POSTGRES_URL": postgres, "TEST_REDIS_URL": redis_server}
    with tempfile.TemporaryFile("w+") as output:
        beside = start_on_postgres(postgres, redis_server, shared, output) if postgres else None
        print("\n=== The suite on SQLite ===", flush=True)
        status = start_pytest([], shared, None).wait()
        if beside is not None:
            print("\n=== The suite on PostgreSQL ===", flush=True)
            status = beside.wait() or status
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout)
    missing = [name for name, url in (("PostgreSQL", postgres), ("Redis", redis_server)) if not url]
    return status or report(missing)


def start_on_postgres(
    postgres: str, redis_server: str, shared: dict[str, str], output: IO[str]
) -> subprocess.Popen[str]:
    """Start what a database can change, on PostgreSQL: at the same time, since most of a test is waiting."""
    names = {"DATABASE_URL": postgres, "REDIS_URL": redis_server, "MNESIS_TEST_DATABASE": f"test_mnesis_{os.getpid()}"}
    return start_pytest([f"--ignore={path}" for path in NO_DATABASE], shared | names, output)


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

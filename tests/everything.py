"""Run the suite on both kinds of database: ``python -m tests.everything``, with ``--all`` the slow tests too.

On SQLite everything runs; on PostgreSQL what is marked ``both_databases``, and with ``--all`` whatever uses a database
but pages, endpoints and commands.

PostgreSQL and Redis are looked for on this machine; TEST_POSTGRES_URL and TEST_REDIS_URL name others.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

import psycopg
import redis

from tests.support.sites.databases import drop_shared, migrated_database
from tests.support.sites.site import SHARED, migrated_file

POOLED = ["--max-worker-restart=0", "--dist=loadfile", "--no-loadscope-reorder"]
"""Files are handed out in their order."""
PROCESSES = {"SQLite": 2, "PostgreSQL": 2}
"""More than cores: tests wait for servers, leases and each other. With more, a busy machine leaves some of them too little time."""
PAGES = (
    *("*_app/**/test_admin.py", "*_app/**/test_views.py", "agents_app/commands/test_*.py"),
    *("agents_app/endpoints/test_anthropic.py", "agents_app/endpoints/test_openai.py"),
    *("agents_app/endpoints/test_responses.py", "agents_app/endpoints/test_jsonrpc.py"),
    *("agents_app/endpoints/test_mcp_server.py", "agents_app/endpoints/test_stdio.py"),
    *("agents_app/endpoints/test_pictures_at_addresses.py", "agents_app/turns/calls/test_limits_of_providers.py"),
    *("agents_app/maps/test_*_pages.py", "agents_app/maps/test_operators_api.py"),
    *("agents_app/maps/test_operator_commands.py", "agents_app/tools/test_pictures_of_tools.py"),
    *("agents_app/tools/mcp/test_listed_servers.py", "agents_app/tools/mcp/test_mcp_admin.py"),
    *("agents_app/tools/mcp/test_mcp_servers.py", "agents_app/tools/mcp/test_read_only_tools.py"),
    *("agents_app/tools/mcp/test_server*.py", "agents_app/turns/calls/test_prompt_caching.py"),
    *("agents_app/turns/calls/test_thinking.py", "agents_app/turns/calls/test_too_long.py"),
    *("audit_app/evaluation/test_evaluation_pages.py", "audit_app/observe/test_observe_page.py"),
    *("audit_app/transfer/test_export_readable.py", "audit_app/transfer/test_import_page.py"),
    *("compaction_app/context/test_context_api.py", "compaction_app/inspector/test_inspect_*.py"),
    *("files_app/test_files_api.py", "files_app/test_lines.py", "files_app/test_prose.py"),
    *("journeys/connections/test_what_is_sent.py", "journeys/models/test_models_that_fail.py"),
    *("journeys/models/test_pictures.py", "mnesis_site/endpoints/test_errors.py", "mnesis_site/people/test_looks.py"),
    *("mnesis_site/languages/test_*.py", "sessions_app/pages/test_branch_pages.py"),
    *("sessions_app/admin/test_admin_addresses.py", "sessions_app/llm/test_listed_models.py"),
    "sessions_app/llm/test_models_page.py",
)
"""Pages, endpoints, commands, tools and what providers are sent, without SQL of their own: never on PostgreSQL, but for what is ``both_databases``."""
TESTS = Path(__file__).parent
ALL = "--all"
"""The argument of ``make test-all``: with slow tests, and on PostgreSQL with what uses the database."""
NO_TESTS = 5
"""pytest's exit status when it selected no test."""
SHOWN = 3_000
"""Characters of a failure's end that are shown again after both pools: a log that is cut in the middle has them."""
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
class Pool:
    """One pytest with its workers, on one kind of database."""

    title: str
    process: subprocess.Popen[str]
    results: Path
    """Where pytest writes JUnit's XML."""
    output: IO[str] | None
    """Where its output waits for its turn; ``None`` is the terminal."""


def left_out_on_postgresql() -> list[str]:
    """Return options that leave out modules in which nothing is for both databases: importing them takes seconds."""
    places = PAGES if ALL in sys.argv else ("**/test_*.py",)
    modules = sorted({module for place in places for module in TESTS.glob(place)})
    return [f"--ignore={module}" for module in modules if "mark.both_databases" not in module.read_text()]


def start(
    title: str, marks: str, environment: dict[str, str], options: Sequence[str] = (), *, is_shown: bool = False
) -> Pool:
    """Start the tests that a mark expression selects."""
    output = None if is_shown else tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed where it is read
    results = Path(environment[SHARED], f"{title}.xml")
    pool = [*POOLED, f"--numprocesses={PROCESSES[title]}", f"--junitxml={results}"]
    command = [sys.executable, "-m", "pytest", *pool, "-m", marks, *options, *arguments()]
    process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True)
    return Pool(title, process, results, output)


def arguments() -> list[str]:
    """Return what is passed on to pytest."""
    return [argument for argument in sys.argv[1:] if argument != ALL]


def finish(pool: Pool) -> int:
    """Wait for a pool, print its output, and return its exit status."""
    print(f"\n=== {pool.title} ===", flush=True)
    status = pool.process.wait()
    if pool.output is not None:
        with pool.output as output:
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout)
    return status


def main() -> int:
    """Run the suite on SQLite and, beside it, on PostgreSQL with Redis where they are; say what was left out."""
    postgres, redis_server = find_postgres(), find_redis()
    for name in DROPPED:
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="mnesis-tests-") as folder:
        os.environ |= {"TEST_POSTGRES_URL": postgres, "TEST_REDIS_URL": redis_server, SHARED: folder}
        try:
            statuses = run_all(postgres)
        finally:
            if postgres:
                drop_shared(postgres)
    if ALL not in sys.argv:
        print("\nLeft out: slow tests, and PostgreSQL where the database makes no difference. make test-all runs them.")
    if arguments() and len(statuses) > 1:
        statuses.discard(NO_TESTS)  # a part of the suite may have tests on one database only
    missing = [name for name, url in (("PostgreSQL", postgres), ("Redis", redis_server)) if not url]
    return max(statuses) or report(missing)


def run_all(postgres: str) -> set[int]:
    """Run both pools at the same time, and make meanwhile what all their processes begin with."""
    pools = start_all(dict(os.environ))
    with suppress(AssertionError, subprocess.TimeoutExpired):  # each test that needs one says why there is none
        migrated_file()
        if postgres:
            with migrated_database(postgres):
                pass  # it stays
    statuses = {finish(pool) for pool in pools}
    for pool in pools:
        show_failures(pool)
    return statuses


def show_failures(pool: Pool) -> None:
    """Print the end of each failure once more."""
    if not pool.results.exists():
        return
    for case in ElementTree.parse(pool.results).iter("testcase"):
        for failure in (*case.iter("failure"), *case.iter("error")):
            print(
                f"\n=== {pool.title}: {case.get('classname')}.{case.get('name')} ===\n{(failure.text or '')[-SHOWN:]}"
            )


def start_all(shared: dict[str, str]) -> list[Pool]:
    """Start both pools at the same time; the output of the one on SQLite is seen as it runs."""
    is_all = ALL in sys.argv
    speed, examples = ("not soak", []) if is_all else ("not slow and not soak", ["--hypothesis-profile=quick"])
    pools = [start("SQLite", speed, shared, examples, is_shown=True)]
    if url := shared["TEST_POSTGRES_URL"]:
        name = f"test_mnesis_{os.getpid()}"
        names = {"DATABASE_URL": url, "REDIS_URL": shared["TEST_REDIS_URL"], "MNESIS_TEST_DATABASE": name}
        scope = "(both_databases or uses_database) and not one_database" if is_all else "both_databases"
        options = [*left_out_on_postgresql(), *examples]
        pools.append(start("PostgreSQL", f"{scope} and {speed}", shared | names, options))
    return pools


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

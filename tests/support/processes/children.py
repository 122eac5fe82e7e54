"""A function in a process of its own, on the database of this test run: something to be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.db import connection

from tests.support.sites.site import ROOT, environment_for

CHILD_SECONDS = 600.0
"""A child that hangs runs so long; any other takes seconds, or a minute on a busy machine."""
# The end is sudden: connections that are still open would be closed by a Python that is half gone.
RUN = """
import django, importlib, os, sys
django.setup()
status = importlib.import_module(sys.argv[1]).main(*sys.argv[2:])
sys.stdout.flush()
os._exit(status)
"""
WAITS = "from sessions_app.record.lease import new_owner; print(new_owner(), flush=True); input()"


@contextmanager
def another_process() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that waits, and the name under which it would hold leases."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def run_child(module: str, *arguments: object, seconds: float = CHILD_SECONDS, **environment: str) -> str:
    """Run ``main`` of a module with Django set up, on this run's database or what the environment names.

    Returns what it printed.
    """
    variables = {"DATABASE_URL": database_url()} | environment
    everything = environment_for(Path(settings.DATA_DIR), **variables)
    return run_main(module, *arguments, seconds=seconds, environment=everything)


def run_main(module: str, *arguments: object, seconds: float = CHILD_SECONDS, environment: dict[str, str]) -> str:
    """Run ``main`` of a module with Django set up and with this environment; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, module, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    return done.stdout


def database_url() -> str:
    """The address of the database that this test uses."""
    values = connection.settings_dict
    name = str(values["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    who = quote(values["USER"]) + (":" + quote(values["PASSWORD"], safe="") if values["PASSWORD"] else "")
    return f"postgresql://{who}@{values['HOST']}:{values['PORT'] or 5432}/{quote(name)}"

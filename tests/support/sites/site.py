"""Mnesis as a user starts it: ``manage.py up`` in a directory and on a port of its own."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil

from tests.support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
DATABASE = "mnesis.sqlite3"
UNLIMITED = "[requests]\nper_second = 100_000\nburst = 100_000\n"
"""Part of a configuration for tests in which one key asks what many people would."""
SHARED = "MNESIS_TEST_SHARED"
"""The variable that names a directory for all processes of a run; each has its own without (``python -m tests.everything``)."""
MIGRATION_SECONDS = 900.0
"""All migrations, once for a whole run, on a machine that does much else: without them no test of it could pass."""
OURS = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "ALLOWED_HOSTS", "DEBUG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One running tree of web server and worker."""

    port: int
    directory: Path
    launcher: subprocess.Popen[bytes]
    environment: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def output(self) -> str:
        """Everything the tree printed so far."""
        return (self.directory / "output").read_text()

    def sign_in_link(self) -> str:
        """The address of the first sign-in, if one was printed."""
        found = re.search(r"http\S+/sign-in/link/\S+", self.output())
        return found[0] if found else ""

    def sign_in(self, client: httpx.Client) -> None:
        """Sign in with the first link, as a browser does."""
        page = client.get(self.sign_in_link())
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
        assert token, page.text
        client.post(page.url, data={"csrfmiddlewaretoken": token[1]}, follow_redirects=True).raise_for_status()

    def processes(self) -> list[psutil.Process]:
        """The launcher and everything below it."""
        launcher = psutil.Process(self.launcher.pid)
        return [launcher, *launcher.children(recursive=True)]

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command on the same data."""
        return manage(*arguments, environment=self.environment)


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment_for(directory: Path, **settings: str) -> dict[str, str]:
    """The environment of a command: the data directory, the settings given, and none of the test run's own."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS and "MNESIS" not in name}
    return {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "mnesis_site.settings",
        "MNESIS_DATA_DIR": str(directory),
        "MNESIS_WARM_UP": "false",  # most sites never need what takes seconds to load
        "PYTHONWARNINGS": "default",
        **settings,
    }


def manage(
    *arguments: str, environment: dict[str, str], seconds: float = PATIENCE_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, for so many seconds at the most."""
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def shared_folder() -> Path | None:
    """The directory of all processes of this run, if they share one."""
    name = os.environ.get(SHARED)
    return Path(name) if name else None


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep the other processes of this run waiting that come here too."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def migrated_file() -> Path:
    """A database file that the migrations have been through, and nothing else: going through them takes seconds."""
    folder = shared_folder() or Path(os.environ["MNESIS_DATA_DIR"])
    file = folder / "migrated.sqlite3"
    with one_at_a_time(folder):
        if not file.exists():
            with TemporaryDirectory(dir=folder) as new:
                migrate(Path(new))
                (Path(new) / DATABASE).rename(file)
    return file


def migrate(directory: Path, **settings: str) -> None:
    environment = environment_for(directory, **settings)
    done = manage("migrate", "--verbosity=0", environment=environment, seconds=MIGRATION_SECONDS)
    assert done.returncode == 0, done.stderr


def lay_database(directory: Path) -> None:
    """Put a migrated database where a new site looks for its own."""
    if not (directory / DATABASE).exists():
        shutil.copy(migrated_file(), directory / DATABASE)


@contextmanager
def running_site(directory: Path, *, is_prepared: bool = True, **settings: str) -> Iterator[Site]:
    """Start Mnesis, wait until it says that it runs, and stop it at the end, whatever happened in between.

    :param is_prepared: on SQLite, whether its database is there already when it starts
    """
    if is_prepared and "DATABASE_URL" not in settings:
        lay_database(directory)
    environment = environment_for(directory, **settings)
    port = free_port()
    command = [sys.executable, "manage.py", "up", "--port", str(port), "--workers", "1"]
    with (directory / "output").open("wb") as output:
        launcher = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    site = Site(port=port, directory=directory, launcher=launcher, environment=environment)
    try:
        wait_until(lambda: "Mnesis runs at" in site.output() or launcher.poll() is not None)
        assert launcher.poll() is None, site.output()
        yield site
    finally:
        stop(launcher)


def stop(launcher: subprocess.Popen[bytes]) -> int:
    """Ask the launcher to stop, and return its exit status."""
    if launcher.poll() is None:
        launcher.send_signal(signal.SIGTERM)
    return launcher.wait(timeout=PATIENCE_SECONDS)


def wait_until_ready(site: Site) -> None:
    """Wait until /readyz says that nothing is missing: the worker needs a moment longer than the web server."""
    wait_until(lambda: _is_ready(site))


def _is_ready(site: Site) -> bool:
    try:
        # Certificates, which loopback does not need, take longer to read than to ask for this.
        return httpx.get(f"{site.url}/readyz?strict=1", verify=False).status_code == 200
    except httpx.TransportError:
        return False


def named(processes: Iterable[psutil.Process], words: str) -> list[psutil.Process]:
    """Those of the processes whose command line has these words. One that has ended since it was listed has none."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a zombie is one, too
            found += [process] if words in " ".join(process.cmdline()) else []
    return found


def wait_until(condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Look again and again until the condition holds.

    :raises TimeoutError: it does not, for so long.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.05)

"""Servers and disks of a test's own, that may go away and come back: PostgreSQL, a line to it, Redis, a small disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import redis

from tests.support.sites.site import free_port, migrate, named, one_at_a_time, shared_folder, wait_until
from tests.support.waiting import PATIENCE_SECONDS

DISK_SIZE = "48m"
SPARE_BYTES = 1 << 20
"""What one write of the filler takes."""


class Outage(ABC):
    """Something a site needs, that goes away and comes back."""

    settings: dict[str, str]
    """The environment of a site that uses it."""

    @abstractmethod
    def begin(self) -> None:
        """Take it away."""

    @abstractmethod
    def end(self) -> None:
        """Bring it back."""


class Postgres(Outage):
    """A cluster of its own, stopped and started."""

    def __init__(self, folder: Path, *, like: Path | None = None) -> None:
        [*_, initdb] = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        self.bin, self.data, self.port = initdb.parent, folder / "data", free_port()
        self.settings = {"DATABASE_URL": self.url(self.port)}
        if like:
            subprocess.run(["cp", "--archive", like, self.data], check=True)
        else:
            self._run("initdb", "-U", "mnesis", "-A", "trust", "-E", "UTF8")
        self.end()

    @staticmethod
    def url(port: int) -> str:
        """The address of the database at a port: its own, or one that leads to it."""
        return f"postgresql://mnesis@127.0.0.1:{port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        # PostgreSQL refuses to run as root.
        other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        command = [*other, str(self.bin / program), "-D", str(self.data), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_SECONDS)

    def begin(self) -> None:
        """Stop the cluster: every connection ends, new ones are refused."""
        self._run("pg_ctl", "-w", "-m", "fast", "stop")

    def end(self) -> None:
        """Start it."""
        options = f"-p {self.port} -k {self.data} -c fsync=off -c max_connections=60"
        self._run("pg_ctl", "-w", "-l", str(self.data / "log"), "-o", options, "start")

    def backends(self) -> list[psutil.Process]:
        """The processes that serve its clients."""
        postmaster = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        return named(postmaster.children(), "127.0.0.1(")


class FrozenBackends(Outage):
    """Backends that are there and do nothing, as on a disk that hangs."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres, self.settings = postgres, postgres.settings
        self._frozen: list[psutil.Process] = []

    def begin(self) -> None:
        """Freeze every backend."""
        self._frozen = self.postgres.backends()
        for backend in self._frozen:
            with suppress(psutil.NoSuchProcess):
                backend.suspend()

    def end(self) -> None:
        """Let them go on."""
        for backend in self._frozen:
            with suppress(psutil.NoSuchProcess):
                backend.resume()
        self._frozen = []


class Line(Outage):
    """A line to PostgreSQL, in a thread of its own: cut, it drops every connection, also new ones."""

    def __init__(self, postgres: Postgres) -> None:
        self.port, self._server = free_port(), postgres.port
        self.settings = {"DATABASE_URL": postgres.url(self.port)}
        self._is_cut = False
        self._ends: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="line", daemon=True)
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._proxy = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)

    def begin(self) -> None:
        """Cut it."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._drop)

    def end(self) -> None:
        """Mend it."""
        self._is_cut = False

    def close(self) -> None:
        """End the thread."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _stop(self) -> None:
        self._proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._drop()
        await asyncio.sleep(0)  # the transports close their sockets

    def _drop(self) -> None:
        for end in list(self._ends):
            end.transport.abort()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self._is_cut:
            to_client.transport.abort()
            return
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._server)
        except OSError:
            to_client.transport.abort()
            return
        ends = {to_client, to_server}
        self._ends |= ends
        await asyncio.wait(
            [asyncio.ensure_future(_pass_on(client, to_server)), asyncio.ensure_future(_pass_on(server, to_client))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._ends -= ends
        for end in ends:
            end.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


class RedisServer(Outage):
    """A server of its own, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.settings = {"REDIS_URL": f"redis://127.0.0.1:{self.port}/0"}
        self._server: subprocess.Popen[bytes] | None = None
        self.end()

    def begin(self) -> None:
        """Kill it."""
        if self._server is not None:
            self._server.kill()
            self._server.wait(30)
            self._server = None

    def end(self) -> None:
        """Start it, empty."""
        command = ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", self.folder]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(self._answers)

    def freeze(self) -> None:
        """Leave it there, doing nothing."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def _answers(self) -> bool:
        try:
            with redis.Redis(port=self.port) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


class FullDisk(Outage):
    """A small disk on which the site keeps its data: filled, and emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings = folder, {}

    def begin(self) -> None:
        """Fill it to the last byte, and keep it full: a deleted file of the site would make room."""
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            for size in (SPARE_BYTES, 4096, 1):
                try:
                    while filler.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def end(self) -> None:
        """Make room."""
        (self.folder / "filler").unlink()


@contextmanager
def own_postgres(*, is_prepared: bool = True) -> Iterator[Postgres]:
    """A cluster for the length of the block.

    :param is_prepared: whether its database has been through the migrations
    """
    like = migrated_cluster() if is_prepared else None
    folder = Path(tempfile.mkdtemp(prefix="own-postgres-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        server = Postgres(folder, like=like)
        try:
            yield server
        finally:
            if (server.data / "postmaster.pid").exists():
                for backend in server.backends():
                    backend.send_signal(signal.SIGCONT)
                server._run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def migrated_cluster() -> Path:
    """The files of a cluster whose database the migrations have been through: going through them takes many seconds."""
    folder = shared_folder() or Path(os.environ["MNESIS_DATA_DIR"])
    files = folder / "cluster"
    with one_at_a_time(folder):
        if not files.exists():
            with own_postgres(is_prepared=False) as server:
                migrate(folder, **server.settings)
                server.begin()
                # Copied, because a move to another file system would change the owner.
                subprocess.run(["cp", "--archive", server.data, files], check=True)
    return files


@contextmanager
def own_line() -> Iterator[Line]:
    """A line to a cluster of its own."""
    with own_postgres() as postgres:
        line = Line(postgres)
        try:
            yield line
        finally:
            line.close()


@contextmanager
def own_redis(folder: Path) -> Iterator[RedisServer]:
    """A Redis for the length of the block."""
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.begin()


@contextmanager
def small_disk(folder: Path) -> Iterator[FullDisk]:
    """A disk of its own, mounted at a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(folder)], check=True)
    try:
        yield FullDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)

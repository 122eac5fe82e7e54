"""Large uploads: the web process reads them piece by piece, whichever way they come, and one goes on after a kill."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.journeys.conftest import Caller
from tests.support.sites.site import Site, wait_until
from tests.support.sites.webs import end_web, wait_until_it_runs_again, web_server
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20
MOST_MEMORY = 150 * MEGABYTE
PIECE_BYTES = 8 * MEGABYTE
BOUNDARY = "0123456789abcdef"


@contextmanager
def highest_memory(process: psutil.Process) -> Iterator[list[int]]:
    """Bytes that a process grows by at the most, during the block."""
    before, highest, done = process.memory_info().rss, [0], threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            highest[0] = max(highest[0], process.memory_info().rss - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield highest
    finally:
        done.set()
        looking.join()


def pieces(size: int, digest: Any) -> Iterator[bytes]:
    """Bytes that are never the same twice."""
    for _ in range(size // MEGABYTE):
        piece = os.urandom(1024) * 1024
        digest.update(piece)
        yield piece


def send_in_one(caller: Caller, session_id: str, size: int) -> tuple[dict[str, Any], str]:
    """A file as one multipart request, and its SHA-256."""
    digest = hashlib.sha256()
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="session_id"\r\n\r\n{session_id}\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="large.bin"\r\n\r\n'
    )
    tail = f"\r\n--{BOUNDARY}--\r\n"

    def body() -> Iterator[bytes]:
        yield head.encode()
        yield from pieces(size, digest)
        yield tail.encode()

    length = len(head) + size // MEGABYTE * MEGABYTE + len(tail)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Content-Length": str(length)}
    answer = caller.client.post("/api/files", content=body(), headers=headers, timeout=600)
    assert answer.status_code == 201, answer.text
    return answer.json(), digest.hexdigest()


def begin(caller: Caller, session_id: str, size: int) -> str:
    facts = {"filename": "large.bin", "session_id": session_id}
    metadata = ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in facts.items())
    headers = {"Upload-Length": str(size), "Upload-Metadata": metadata}
    return str(caller.client.post("/api/uploads", headers=headers).headers["Location"])


def send(caller: Caller, place: str, offset: int, data: bytes) -> Any:
    headers = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
    return caller.client.patch(place, content=data, headers=headers, timeout=PATIENCE_SECONDS)


def send_in_pieces(caller: Caller, session_id: str, size: int) -> tuple[dict[str, Any], str]:
    """A file piece by piece, and its SHA-256."""
    digest, offset = hashlib.sha256(), 0
    place = begin(caller, session_id, size)
    answer = None
    while offset < size:
        data = b"".join(pieces(PIECE_BYTES, digest))
        answer = send(caller, place, offset, data)
        assert answer.status_code == 204, answer.text
        offset += len(data)
    assert answer is not None
    return caller.client.get(f"/api/files/{answer.headers['Mnesis-File']}").json(), digest.hexdigest()


@pytest.mark.parametrize("way", [send_in_one, send_in_pieces])
@pytest.mark.parametrize("megabytes", [64, pytest.param(2048, marks=pytest.mark.soak)])
def test_a_large_upload_costs_the_web_process_little_memory(
    site: Site, caller: Caller, way: Any, megabytes: int
) -> None:
    session_id, size = caller.new_session(), megabytes * MEGABYTE
    way(caller, session_id, MEGABYTE * 8)  # whatever is loaded once is loaded
    began = time.monotonic()
    with highest_memory(web_server(site)) as highest:
        file, digest = way(caller, session_id, size)
    seconds = time.monotonic() - began
    print(f"{megabytes} MiB by {way.__name__}: {highest[0] >> 20} MiB more at the most, {seconds:.0f} s")
    assert (file["content_id"], file["size"]) == (digest, size)
    assert highest[0] < MOST_MEMORY


def test_an_upload_goes_on_after_the_web_process_was_killed(site: Site, caller: Caller) -> None:
    session_id = caller.new_session()
    place = begin(caller, session_id, 11)
    assert send(caller, place, 0, b"hello ").status_code == 204
    end_web(site, signal.SIGKILL)
    wait_until_it_runs_again(site)
    offset = int(caller.client.head(place).headers["Upload-Offset"])
    file_id = send(caller, place, offset, b"hello world"[offset:]).headers["Mnesis-File"]
    wait_until(lambda: caller.call("GET", f"/api/files/{file_id}")["state"] == "explored")
    assert caller.client.get(f"/api/files/{file_id}/content").content == b"hello world"

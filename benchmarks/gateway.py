"""The first token of an answer through the gateway, against the same provider on loopback, asked directly.

Both are asked alternately by one client that keeps its connections, with a growing conversation as a coding agent sends it:
the whole history each time, the system prompt and tools behind it. The provider answers at once, so all that is measured
is what stands between it and the client. What the record keeps of the bytes is measured too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

import httpx
import psutil
from django.contrib.auth.models import User
from django.db.models import Sum
from django.db.models.functions import Length

from mnesis_core.llm.interface import ModelSpec
from sessions_app.llm import model_store
from sessions_app.llm.model_store import create_key
from sessions_app.models import PromptText
from tests.support.providers.raw_provider import RawProvider, Saying
from tests.support.sites.site import free_port

REQUESTS = 100
SIZES = (0, 60_000)
"""Characters of the system prompt and the tools."""
SAID = "The tide turns at noon, and the ferry waits for it. " * 20


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    with RawProvider(lambda body: Saying(text="It does so at noon.")) as provider:
        spec = ModelSpec(
            alias="raw",
            litellm_model="anthropic/raw-1",
            api_base=provider.url,
            context_window=1_000_000,
            max_output_tokens=8_000,
            entered_on_host=True,
        )
        model_store.put_model(spec, api_key_env="RAW_KEY")
        key = str(create_key(owner_id=owner.pk))
        with _running() as (port, process), httpx.Client(timeout=60) as client:
            ways = (
                (f"{provider.url}/v1/messages", {"x-api-key": "sk-raw"}),
                (f"http://127.0.0.1:{port}/v1/messages", {"x-api-key": key, "x-mnesis-mode": "gateway"}),
            )
            _until_ready(client, ways[1], process)
            return [_row(client, ways, size, process) for size in SIZES]


def _row(client: httpx.Client, ways: Any, size: int, process: psutil.Process) -> tuple[str, ...]:
    tools = [{"name": f"t{n}", "description": "x" * 990, "input_schema": {}} for n in range(size // 1_000)]
    history: list[dict[str, Any]] = []
    before, began = _kept(), sum(process.cpu_times()[:2])
    times: list[list[float]] = [[], []]
    sent = 0
    for number in range(REQUESTS):
        history.append({"role": "user", "content": f"{number} of {size}: {SAID}"})
        body = {"model": "raw", "max_tokens": 100, "stream": True, "messages": history, "tools": tools}
        data = json.dumps(body).encode()
        sent += len(data)
        for way in (0, 1) if number % 2 else (1, 0):
            times[way].append(_first_token(client, ways[way], data))
        history.append({"role": "assistant", "content": "It does so at noon."})
    more = [1000 * (ours - direct) for direct, ours in zip(*times, strict=True)]
    direct, ours = (1000 * median(column) for column in times)
    kept, processor = _kept() - before, sum(process.cpu_times()[:2]) - began
    return (
        *(f"{size:,}", f"{direct:.1f}", f"{ours:.1f}", f"{median(more):.1f}", f"{quantiles(more, n=100)[94]:.1f}"),
        f"{1000 * processor / REQUESTS:.1f}",
        *(f"{sent / 1e6:.1f}", f"{len(data) / 1e6:.2f}", f"{kept / 1e6:.2f}"),
    )


def _first_token(client: httpx.Client, way: tuple[str, dict[str, str]], data: bytes) -> float:
    address, headers = way
    began = time.perf_counter()
    seconds = 0.0
    with client.stream("POST", address, content=data, headers=headers | {"content-type": "application/json"}) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if not seconds and "text_delta" in line:
                seconds = time.perf_counter() - began
    return seconds


def _kept() -> int:
    return PromptText.objects.aggregate(kept=Sum(Length("content"), default=0))["kept"] or 0


def _until_ready(client: httpx.Client, way: tuple[str, dict[str, str]], process: psutil.Process) -> None:
    """Wait until the server answers and has loaded what it loads beside its first requests."""
    data = json.dumps({"model": "raw", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    for _ in range(600):
        try:
            _first_token(client, way, data)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            while process.cpu_percent(interval=1) > 5:
                pass
            return
    raise AssertionError("the server does not answer")


@contextmanager
def _running() -> Iterator[tuple[int, psutil.Process]]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.support.served", str(port)]
    process = subprocess.Popen(command, env=os.environ | {"MNESIS_ROLE": "web", "RAW_KEY": "sk-raw"})
    try:
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()

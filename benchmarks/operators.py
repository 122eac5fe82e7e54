"""Items of an operator's run with a model that answers instantly, against asyncio tasks with a semaphore and no storage.

The difference is our own work per item: read it, render it, record it before asking, judge the answer, settle the item,
bind it in the ledger, and write it to the output file. Workers are processes that share one run. The numbers of items
and workers come from ``MNESIS_BENCHMARK_ITEMS=1000,100000`` and ``MNESIS_BENCHMARK_WORKERS=1,4``. If
``MNESIS_BENCHMARK_REFERENCE`` is the Python of an environment with the reference library, its LLMMap is measured too,
with a provider that answers instantly.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections

from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import load_run
from mnesis_core.llm.interface import Model, ModelSpec, ReasoningDelta, Reply, Request, Source, TextDelta, Usage
from mnesis_core.maps.prompts import judge_reply, map_payload, schema_of
from mnesis_core.maps.values import OperatorSpec, RunState
from sessions_app.record import session_store
from sessions_app.record.session_queries import load_session
from tests.support.processes.writers import fork
from tests.support.record.maps import start

CONCURRENCY = 64
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEMPLATE = "How many words has this sentence? {{ item.text }}"
TEXT = "The harbour office moved its ledgers to the new building in March, and Ines checked every one of them."
REFERENCE = """
import asyncio, json, logging, sys, time
from types import SimpleNamespace as Has
import litellm, structlog
from mnesis import LLMMap, OperatorConfig
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
async def at_once(**_):
    return Has(choices=[Has(message=Has(content='{"n": 18}'))])
litellm.acompletion = at_once
async def main(items, template, schema, text, concurrency):
    inputs = [{"text": text, "number": n} for n in range(items)]
    began = time.perf_counter()
    found = LLMMap(OperatorConfig()).run(inputs, template, schema, model="openai/gpt-4o", concurrency=concurrency)
    assert all([one.success async for one in found])
    print(time.perf_counter() - began)
asyncio.run(main(*json.loads(sys.argv[1])))
"""


class InstantModel:
    """A ``mnesis_core.llm.interface.Model`` that instantly gives the expected answer."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | ReasoningDelta | Reply]:
        """Stream the answer without pauses."""
        usage = Usage(input_tokens=120, output_tokens=8, source=Source.PROVIDER)
        yield Reply(text='{"n": 18}', finish_reason="stop", usage=usage)


def make_model(spec: ModelSpec) -> Model:
    return InstantModel(spec)


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": f"{__name__}.make_model"}
    owner = User.objects.create_user("benchmark")
    return [
        _row(owner, items, workers) for items in _numbers("ITEMS", "1000") for workers in _numbers("WORKERS", "1,4")
    ]


def _numbers(name: str, default: str) -> list[int]:
    return [int(number) for number in os.environ.get(f"MNESIS_BENCHMARK_{name}", default).split(",")]


def _row(owner: User, items: int, workers: int) -> tuple[str, ...]:
    # In its own process: otherwise ours would start with the memory used by its tasks.
    with multiprocessing.get_context("fork").Pool(1) as apart:
        plain = apart.apply(_plain_seconds, (items,))
    reference = _reference(items)
    seconds, memory = _ours(owner, items, workers)
    return (
        *(f"{items:,}", str(workers), f"{1e6 * plain / items:,.0f}"),
        *(("-", "-") if reference is None else (f"{1e6 * reference / items:,.0f}", f"{seconds / reference:.2f}")),
        *(f"{1e6 * seconds / items:,.0f}", f"{seconds / plain:.1f}", f"{items / seconds:,.0f}", f"{memory / 1e6:,.0f}"),
    )


def _plain_seconds(items: int) -> float:
    return asyncio.run(_plain(items))


async def _plain(items: int) -> float:
    """Return the seconds for the same questions and answers, rendered and judged, by tasks with a semaphore."""
    spec = OperatorSpec(template=TEMPLATE, schema=SCHEMA)
    model = InstantModel(ModelSpec(alias="x", litellm_model="x/x", context_window=8_000, max_output_tokens=1_000))
    semaphore, schema = asyncio.Semaphore(CONCURRENCY), schema_of(spec)

    async def one(value: Any) -> Any:
        async with semaphore:
            request = Request(payload=map_payload(spec, value), max_output_tokens=100)
            async for item in model.stream(request):
                if isinstance(item, Reply):
                    return judge_reply(item, schema).value
        raise AssertionError("a model's stream must end with a Reply")

    values = _values(items)
    began = time.perf_counter()
    await asyncio.gather(*(one(value) for value in values))
    return time.perf_counter() - began


def _reference(items: int) -> float | None:
    """Return the seconds of the reference library's own operator, in memory."""
    python = os.environ.get("MNESIS_BENCHMARK_REFERENCE", "")
    if not python:
        return None
    arguments = json.dumps([items, TEMPLATE, SCHEMA, TEXT, CONCURRENCY])
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    answer = subprocess.run([python, "-c", REFERENCE, arguments], env=environment, check=True, stdout=subprocess.PIPE)
    return float(answer.stdout.split()[-1])


def _ours(owner: User, items: int, workers: int) -> tuple[float, float]:
    """Return the seconds from waking the workers to the output file, and the bytes of the largest worker."""
    session = load_session(session_store.create_session(owner=owner, model="demo"))
    run_id = start(session, _values(items), template=TEMPLATE, schema=SCHEMA, concurrency=CONCURRENCY)
    connections.close_all()
    began = time.perf_counter()
    pids = [fork(work) for _ in range(workers)]
    memory = max(os.wait4(pid, 0)[2].ru_maxrss for pid in pids)
    seconds = time.perf_counter() - began
    run = load_run(run_id)
    if (run.state, run.counts.completed) != (RunState.COMPLETED, items):
        raise AssertionError(f"the run ended {run.state} with {run.counts}")
    return seconds, memory * 1024


def work() -> None:
    while work_for_a_slice():
        pass


def _values(items: int) -> list[dict[str, Any]]:
    return [{"text": TEXT, "number": number} for number in range(items)]

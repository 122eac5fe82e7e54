"""The REST endpoint compared with what it says of itself: requests made from its OpenAPI document, answers checked with it."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

Ids = dict[str, list[str]]
Call = Callable[..., Any]

STORY = "The harbour office moved its ledgers to the new building in March. Ines checked every one of them twice. " * 6
SLOW_SECONDS = 60
# The pieces of an upload are bytes like any others.
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """An answer that is not as described."""

    operation: str
    status: int
    problem: str
    command: str

    def __str__(self) -> str:
        return f"{self.operation} answered {self.status}: {self.problem[:600]}\n{self.command[:900]}"


def make_things(call: Call) -> Ids:
    """A session with a summary, tool calls, a preview, and the ids of it all by the names of path parameters."""
    session = call("POST", "/api/sessions", {"title": "described"})["id"]
    for number in range(4):
        tool = {"type": "tool", "tool_name": "t", "tool_call_id": f"c{number}", "input": "{}", "output": STORY}
        turn = {"user": f"Chapter {number}. {STORY}", "assistant": [tool, {"type": "text", "text": STORY}]}
        call("POST", f"/api/sessions/{session}/record", turn)
    turn = call("POST", f"/api/sessions/{session}/turns", {"message": "Hello"})
    while call("GET", f"/api/sessions/{session}/turns/{turn['id']}")["state"] == "running":
        time.sleep(0.1)
    summary = call("POST", f"/api/sessions/{session}/compact", {"wait": True})["summary_id"]
    messages = call("GET", f"/api/sessions/{session}/messages")["items"]
    asked = {"session_id": session, "template": "{{ item }}", "items": [1, "two"]}
    run = call("POST", "/api/operators/llm-map", asked)["id"]
    while call("GET", f"/api/operators/{run}")["state"] != "completed":
        time.sleep(0.1)
    return {
        "session_id": [session],
        "run_id": [run],
        "number": ["1", "2"],
        "turn_id": [turn["id"]],
        "summary_id": [summary],
        "preview_id": [call("POST", f"/api/summaries/{summary}/preview")["id"]],
        "message_id": [message["id"] for message in messages],
        "part_id": [part["id"] for message in messages for part in message["parts"]],
        "call_id": [made["id"] for made in call("GET", f"/api/sessions/{session}/calls")["items"]],
    }


def find_lies(url: str, key: str, things: Ids, *, examples: int, seed: int) -> list[Lie]:
    """Ask every operation ``examples`` times what it says it takes, and as often what it says it does not."""
    headers = {"Authorization": f"Bearer {key}"}
    schema = schemathesis.openapi.from_url(f"{url}/api/openapi.json", headers=headers)
    lies: dict[tuple[str, int, str], Lie] = {}
    for found in schema.get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for lie in _ask(found.ok(), mode, headers, things, examples=examples, seed=seed):
                lies.setdefault((lie.operation, lie.status, lie.problem[:80]), lie)
    return list(lies.values())


def _ask(
    operation: Any, mode: GenerationMode, headers: dict[str, str], things: Ids, *, examples: int, seed: int
) -> list[Lie]:
    lies: list[Lie] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.path_parameters = {
            name: _known(name, value, things) for name, value in (case.path_parameters or {}).items()
        }
        response = case.call(headers=headers, timeout=SLOW_SECONDS)
        try:
            # A cursor, a pattern or two fields that exclude each other may be refused with 422, as described.
            case.validate_response(response, excluded_checks=[positive_data_acceptance])
        except Exception as problem:
            lies.extend(
                Lie(
                    operation=operation.label,
                    status=response.status_code,
                    problem=str(one),
                    command=case.as_curl_command(),
                )
                for one in getattr(problem, "exceptions", [problem])
            )

    ask()
    return lies


def _known(name: str, value: Any, things: Ids) -> Any:
    """Three times of four the id of something that is there; what stands there decides, so a run can be repeated."""
    known = things.get(name)
    number = zlib.crc32(str(value).encode("utf-8", "surrogatepass"))
    return known[number // 4 % len(known)] if known and number % 4 else value

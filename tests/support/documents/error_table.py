"""The registry of errors as a page of the documentation: ``python -m tests.support.documents.error_table`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mnesis_core import errors
from mnesis_core.errors import MnesisError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "errors.md"
EXITS: dict[int, tuple[str, tuple[type[MnesisError], ...]]] = {
    0: ("done", ()),
    1: ("failed; the message says how", (MnesisError,)),
    2: ("wrong arguments, or a request that is not valid", (errors.InvalidRequest,)),
    3: ("not signed in, or not permitted", (errors.NotSignedIn, errors.PermissionDenied)),
    4: ("not there, or another person's", (errors.NotFound,)),
    5: ("its state forbids this", (errors.Conflict,)),
    6: ("a turn is running", (errors.SessionBusy,)),
    7: ("no turn is running", (errors.SessionNotRunning,)),
    8: ("the session is archived", (errors.SessionArchived,)),
    9: ("not now; try again later", (errors.AtCapacity, errors.TooManyRequests, errors.NotReady)),
    10: ("the model failed", (errors.ModelError,)),
    11: ("a limit is used up", (errors.BudgetExhausted,)),
    12: ("a tool, or the server that has it, failed", (errors.ToolFailed, errors.ToolServerUnreachable)),
    13: ("the turn is waiting for a person or its caller", (errors.TurnSuspended,)),
    130: ("interrupted, as by Ctrl-C", (errors.TurnCancelled,)),
}
"""What each exit status of a command means, one thing, and the errors that mean it, with all below them."""
HEAD = """# Errors

Every error has one code at every endpoint. `mnesis_core/errors.py` is the registry, and this page is made from it
(`python -m tests.support.documents.error_table`).
REST and `/v1` answer `{"error": {"code", "message", "details"}}` with the HTTP status, REST with the `request`'s id as well;
JSON-RPC has the number in `code`, and the code in `data.code` and the request's id in `data.request`; MCP a result with `isError` and the error as its value; a websocket
`{"type": "error", "error"}` with the `request`'s id, which is one for each frame; a command prints `CODE: message` and ends with the exit status. A message may say more than the one
here, so programs should read the code. The [Python client](../clients/python/README.md) raises `MnesisError` with that `code`.

| code | message | HTTP | JSON-RPC | exit status |
|---|---|---|---|---|
"""
EXIT_HEAD = """
## Exit statuses of commands

| status | meaning |
|---|---|
"""


def kinds(kind: type[MnesisError] = MnesisError) -> Iterator[type[MnesisError]]:
    """Every error of the product, in the order of the registry."""
    if kind.__module__ == errors.__name__:
        yield kind
    for child in kind.__subclasses__():
        yield from kinds(child)


def make_page() -> str:
    """The page."""
    rows = [
        f"| `{kind.code}` | {kind().message} | {kind.status} | {kind.rpc_code} | {kind.exit_status} |\n"
        for kind in kinds()
    ]
    exits = [f"| {status} | {meaning} |\n" for status, (meaning, _) in EXITS.items()]
    return HEAD + "".join(rows) + EXIT_HEAD + "".join(exits)


if __name__ == "__main__":
    PAGE.write_text(make_page())

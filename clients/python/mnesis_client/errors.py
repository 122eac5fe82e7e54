"""What a request fails with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

INTERNAL_ERROR = "INTERNAL_ERROR"


class MnesisError(Exception):
    """The server refused a request or failed. The server's docs/errors.md lists every ``code`` and what it means.

    ``status`` is the HTTP status, or 0 when the error did not come as the answer to a request.
    ``details`` depends on the code: ``SESSION_BUSY``, for example, has the ``turn_id`` that is running.
    """

    def __init__(self, code: str, message: str, *, status: int = 0, details: Mapping[str, Any] | None = None) -> None:
        self.code = code
        self.message = message
        self.status = status
        self.details = dict(details or {})
        super().__init__(f"{code}: {message}")


class ConnectionFailed(MnesisError):
    """The server cannot be reached, or the connection broke off. The request may have been carried out or not."""

    def __init__(self, message: str) -> None:
        super().__init__("CONNECTION_FAILED", message)


def read_answer(answer: httpx.Response) -> Any:
    """Return the JSON of a successful answer that has been read.

    :raises MnesisError: the answer is an error, or is not JSON
    """
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and body is not None:
        return body
    raise error_in(body, answer.status_code)


def error_in(body: Any, status: int = 0) -> MnesisError:
    """Return the error of a body ``{"error": {"code", "message", "details"}}``, and INTERNAL_ERROR for any other body."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return MnesisError(INTERNAL_ERROR, f"the server answered HTTP {status} without saying why", status=status)
    return MnesisError(str(error.get("code")), str(error.get("message")), status=status, details=error.get("details"))

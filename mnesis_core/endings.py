"""How work ended: the errors that a turn, a compaction, a tool or a model call ends with.

* MnesisError
  + TurnInterrupted           its process died
  + TurnCancelled             somebody interrupted it
  + TurnSuspended             where a command stops that cannot answer what a turn waits for
  + BudgetExhausted           what a turn may spend is used up
  + StepLimitReached          the turn asked too often
  + DoomLoop                  its model went round in circles
  + CompactionAbandoned       the workers of a compaction died
  + DelegationFailed          a sub-agent gave no answer
  + ToolFailed                a tool says itself that it failed
  + ToolServerUnreachable     a server of tools cannot be asked
  + ModelError                a model call ended badly
    - ModelNotConfigured
    - ModelNotAllowed
    - ModelAuthenticationFailed
    - ModelRateLimited
    - ModelUnreachable
    - ModelTimeout
    - ModelRefusedRequest
      . ContextWindowExceeded
    - ModelUnavailable
    - ModelStreamBroken
    - ModelReplyIncomplete
    - ModelCallAbandoned

They belong to the registry of ``mnesis_core.errors``, with why a request is refused. ``error_of`` reads one back from its code.
"""

from __future__ import annotations

from typing import Any, ClassVar

from mnesis_core.errors import MnesisError


class TurnInterrupted(MnesisError):
    """The server stopped while this turn was running. What had arrived is kept; send a message to go on."""

    code, rpc_code = "TURN_INTERRUPTED", -32017


class TurnCancelled(MnesisError):
    """The turn was interrupted. What was said is kept; send a message to go on."""

    # 130 is what a shell reports of a program that Ctrl-C ended.
    code, status, rpc_code, exit_status = "TURN_CANCELLED", 409, -32019, 130


class TurnSuspended(MnesisError):
    """The turn waits for somebody: for a person to approve a tool call, or for results of the caller's tools."""

    code, status, rpc_code, exit_status = "TURN_SUSPENDED", 409, -32021, 13


class BudgetExhausted(MnesisError):
    """What may be spent is used up. What was said is kept. Ask an administrator for more."""

    code, status, rpc_code, exit_status = "BUDGET_EXHAUSTED", 429, -32018, 11


class StepLimitReached(MnesisError):
    """The turn stopped at its limit of model calls. Send a message to go on."""

    code = "STEP_LIMIT_REACHED"


class DoomLoop(MnesisError):
    """The model made the same call again and again, so the turn was stopped. Send a message to go on."""

    code = "DOOM_LOOP"


class CompactionAbandoned(MnesisError):
    """Every process that took this compaction up died over it, so nobody tries again. The next one is a new one."""

    code = "COMPACTION_ABANDONED"


class DelegationFailed(MnesisError):
    """The sub-agent gave no answer. Its session says why."""

    code, status, rpc_code, exit_status = "DELEGATION_FAILED", 502, -32022, 1


class ToolFailed(MnesisError):
    """The tool says that it failed."""

    code, status, rpc_code, exit_status = "TOOL_FAILED", 502, -32030, 12


class ToolServerUnreachable(MnesisError):
    """The server that brings this tool cannot be asked. 'manage.py mcp_server check NAME' says why."""

    code, status, rpc_code, exit_status = "TOOL_SERVER_UNREACHABLE", 502, -32031, 12


class ModelError(MnesisError):
    """The model call failed."""

    code, status, rpc_code, exit_status = "MODEL_ERROR", 502, -32020, 10
    retriable: ClassVar[bool] = False


class ModelNotConfigured(ModelError):
    """The model has no key. Set the environment variable that its entry names."""

    code = "MODEL_NOT_CONFIGURED"


class ModelNotAllowed(ModelError):
    """The model's entry names a variable or an address that the host's owner has not listed."""

    code = "MODEL_NOT_ALLOWED"


class ModelAuthenticationFailed(ModelError):
    """The provider refused the key. Check the key that this model's entry names."""

    code = "MODEL_AUTHENTICATION_FAILED"


class ModelRateLimited(ModelError):
    """The provider says: too many requests. Wait, then try again."""

    code, status, retriable = "MODEL_RATE_LIMITED", 429, True


class ModelUnreachable(ModelError):
    """The model's server cannot be reached. Check its address and that it runs."""

    code, retriable = "MODEL_UNREACHABLE", True


class ModelTimeout(ModelError):
    """The model did not answer in time."""

    code, retriable = "MODEL_TIMEOUT", True


class ModelRefusedRequest(ModelError):
    """The provider refused the request."""

    code = "MODEL_REFUSED_REQUEST"


class ContextWindowExceeded(ModelRefusedRequest):
    """The provider says that the prompt is too long for the model. Send less at once, or attach it as a file; or correct
    the model's limit."""

    code = "CONTEXT_WINDOW_EXCEEDED"


class ModelUnavailable(ModelError):
    """The provider answered with a server error. Try again in a moment."""

    code, retriable = "MODEL_UNAVAILABLE", True


class ModelStreamBroken(ModelError):
    """The answer broke off. What arrived is kept; send a message to go on."""

    code = "MODEL_STREAM_BROKEN"


class ModelReplyIncomplete(ModelError):
    """The stream ended without proof that the answer is whole. What arrived is kept."""

    code = "MODEL_REPLY_INCOMPLETE"


class ModelCallAbandoned(ModelError):
    """The process that asked ended before the answer was written."""

    code = "MODEL_CALL_ABANDONED"


def error_of(code: str, message: str = "", **details: Any) -> MnesisError:
    """The error that a code stands for, as it was stored; one that this version does not know is an internal error."""
    return _kinds(MnesisError).get(code, MnesisError)(message, **details)


def _kinds(kind: type[MnesisError]) -> dict[str, type[MnesisError]]:
    """Every error by its code. Where a code has several, the one that all of them are."""
    found: dict[str, type[MnesisError]] = {}
    for child in kind.__subclasses__():
        found |= _kinds(child)
    return found | {kind.code: kind}

"""How work ended on the server, one class for each code. Made from the server's registry: do not edit."""

from __future__ import annotations

from typing import Any

from mnesis_client.errors import MnesisError

__all__ = [
    "BudgetExhausted",
    "CompactionAbandoned",
    "ContextWindowExceeded",
    "DelegationFailed",
    "DoomLoop",
    "ModelAuthenticationFailed",
    "ModelCallAbandoned",
    "ModelError",
    "ModelNotAllowed",
    "ModelNotConfigured",
    "ModelRateLimited",
    "ModelRefusedRequest",
    "ModelReplyIncomplete",
    "ModelStreamBroken",
    "ModelTimeout",
    "ModelUnavailable",
    "ModelUnreachable",
    "StepLimitReached",
    "ToolFailed",
    "ToolServerUnreachable",
    "TurnCancelled",
    "TurnInterrupted",
    "TurnSuspended",
]


class TurnInterrupted(MnesisError):
    """The server stopped while this turn was running. What had arrived is kept; send a message to go on."""

    code = "TURN_INTERRUPTED"


class TurnCancelled(MnesisError):
    """The turn was interrupted. What was said is kept; send a message to go on."""

    code = "TURN_CANCELLED"


class TurnSuspended(MnesisError):
    """The turn waits for somebody: for a person to approve a tool call, or for results of the caller's tools."""

    code = "TURN_SUSPENDED"


class BudgetExhausted(MnesisError):
    """What may be spent is used up. What was said is kept. Ask an administrator for more."""

    code = "BUDGET_EXHAUSTED"


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

    code = "DELEGATION_FAILED"


class ToolFailed(MnesisError):
    """The tool says that it failed."""

    code = "TOOL_FAILED"


class ToolServerUnreachable(MnesisError):
    """The server that brings this tool cannot be asked. 'manage.py mcp_server check NAME' says why."""

    code = "TOOL_SERVER_UNREACHABLE"


class ModelError(MnesisError):
    """The model call failed."""

    code = "MODEL_ERROR"


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

    code = "MODEL_RATE_LIMITED"


class ModelUnreachable(ModelError):
    """The model's server cannot be reached. Check its address and that it runs."""

    code = "MODEL_UNREACHABLE"


class ModelTimeout(ModelError):
    """The model did not answer in time."""

    code = "MODEL_TIMEOUT"


class ModelRefusedRequest(ModelError):
    """The provider refused the request."""

    code = "MODEL_REFUSED_REQUEST"


class ContextWindowExceeded(ModelRefusedRequest):
    """The provider says that the context is larger than the model's window. Correct the model's limit."""

    code = "CONTEXT_WINDOW_EXCEEDED"


class ModelUnavailable(ModelError):
    """The provider answered with a server error. Try again in a moment."""

    code = "MODEL_UNAVAILABLE"


class ModelStreamBroken(ModelError):
    """The answer broke off. What arrived is kept; send a message to go on."""

    code = "MODEL_STREAM_BROKEN"


class ModelReplyIncomplete(ModelError):
    """The stream ended without proof that the answer is whole. What arrived is kept."""

    code = "MODEL_REPLY_INCOMPLETE"


class ModelCallAbandoned(ModelError):
    """The process that asked ended before the answer was written."""

    code = "MODEL_CALL_ABANDONED"


def _kinds(kind: type[MnesisError]) -> dict[str, type[MnesisError]]:
    found: dict[str, type[MnesisError]] = {}
    for child in kind.__subclasses__():
        found |= _kinds(child)
    return found | {kind.code: kind}


BY_CODE = _kinds(MnesisError)
"""Every error by its code."""


def error_of(code: str, message: str = "", *, status: int = 0, details: dict[str, Any] | None = None) -> MnesisError:
    """The error that a code stands for; ``MnesisError`` itself for one that this version does not know."""
    return BY_CODE.get(code, MnesisError)(message, code=code, status=status, details=details)

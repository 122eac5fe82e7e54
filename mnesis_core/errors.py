"""Every error of Mnesis, and what each door answers for it.

* MnesisError
  + InvalidRequest            the caller's input is wrong
    - RequestTooLarge
  + NotSignedIn
  + PermissionDenied
  + NotFound                  it does not exist, or belongs to somebody else
    - SessionNotFoundError
    - TurnNotFoundError
    - MessageNotFoundError
    - PartNotFoundError
    - CallNotFoundError
    - SummaryNotFoundError
    - PreviewNotFoundError
    - CompactionNotFoundError
    - FileReferenceNotFoundError
    - ModelNotFoundError
    - ToolNotFoundError
  + Conflict                  it exists, and its state forbids this
    - SessionBusy
    - SessionNotRunning
    - SessionArchived
    - DuplicateIDError
    - IdempotencyMismatch
    - ContextChanged
    - TakenOver
    - SummaryRevised
    - ImmutableFieldError
  + AtCapacity
  + TurnInterrupted           how a turn ended whose process died
  + CompactionAbandoned       how a compaction ended whose workers died
  + NotReady
  + ModelError                a model call ended badly
    - ModelNotConfigured
    - ModelAuthenticationFailed
    - ModelRateLimited
    - ModelUnreachable
    - ModelTimeout
    - ModelRefusedRequest
    - ContextWindowExceeded
    - ModelUnavailable
    - ModelStreamBroken
    - ModelReplyIncomplete
    - ModelCallAbandoned

The class docstring is the default message. The class attributes are the one registry behind every
door: ``code`` (stable, public), ``status`` (HTTP), ``rpc_code`` (JSON-RPC 2.0) and ``exit_status``
(commands).
"""

from __future__ import annotations

from typing import Any, ClassVar


class MnesisError(Exception):
    """Something went wrong inside Mnesis. The server's log has the details."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    rpc_code: ClassVar[int] = -32603
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str = "", **details: Any) -> None:
        self.message = message or " ".join((type(self).__doc__ or "").split())
        self.details = details
        super().__init__(self.message)

    def as_dict(self) -> dict[str, Any]:
        """The error's public shape, the same at every door."""
        return {"code": self.code, "message": self.message, "details": self.details}


class InvalidRequest(MnesisError):
    """The request is not valid."""

    code, status, rpc_code, exit_status = "INVALID_REQUEST", 422, -32602, 2


class RequestTooLarge(InvalidRequest):
    """The request is larger than this server accepts. Send less, or upload it as a file."""

    code, status, rpc_code, exit_status = "REQUEST_TOO_LARGE", 413, -32013, 2


class NotSignedIn(MnesisError):
    """Sign in, or send an API key as 'Authorization: Bearer mns_…'."""

    code, status, rpc_code, exit_status = "NOT_SIGNED_IN", 401, -32001, 3


class PermissionDenied(MnesisError):
    """Your account may not do this. Ask an administrator."""

    code, status, rpc_code, exit_status = "PERMISSION_DENIED", 403, -32003, 3


class NotFound(MnesisError):
    """There is no such thing here."""

    code, status, rpc_code, exit_status = "NOT_FOUND", 404, -32004, 4


class SessionNotFoundError(NotFound):
    """There is no such session, or it is not yours."""

    code = "SESSION_NOT_FOUND"


class TurnNotFoundError(NotFound):
    """There is no such turn, or it is not yours."""

    code = "TURN_NOT_FOUND"


class MessageNotFoundError(NotFound):
    """There is no such message, or it is not yours."""

    code = "MESSAGE_NOT_FOUND"


class PartNotFoundError(NotFound):
    """There is no such message part, or it is not yours."""

    code = "PART_NOT_FOUND"


class CallNotFoundError(NotFound):
    """There is no such model call, or it is not yours."""

    code = "CALL_NOT_FOUND"


class SummaryNotFoundError(NotFound):
    """There is no such summary, or it is not yours."""

    code = "SUMMARY_NOT_FOUND"


class PreviewNotFoundError(NotFound):
    """There is no such preview, or it is not yours."""

    code = "PREVIEW_NOT_FOUND"


class CompactionNotFoundError(NotFound):
    """There is no such compaction, or it is not yours."""

    code = "COMPACTION_NOT_FOUND"


class FileReferenceNotFoundError(NotFound):
    """There is no such file, or it is not yours."""

    code = "FILE_NOT_FOUND"


class ModelNotFoundError(NotFound):
    """No model has this name. 'manage.py model list' shows the ones there are."""

    code = "MODEL_NOT_FOUND"


class ToolNotFoundError(NotFound):
    """No tool has this name."""

    code = "TOOL_NOT_FOUND"


class Conflict(MnesisError):
    """The thing is in a state that forbids this."""

    code, status, rpc_code, exit_status = "CONFLICT", 409, -32009, 5


class SessionBusy(Conflict):
    """A turn is already running in this session. Wait for it, or interrupt it."""

    code, rpc_code, exit_status = "SESSION_BUSY", -32010, 6


class SessionNotRunning(Conflict):
    """No turn is running in this session, so there is nothing to interrupt."""

    code, rpc_code, exit_status = "SESSION_NOT_RUNNING", -32011, 7


class SessionArchived(Conflict):
    """This session is archived. It can be read and exported; fork it to go on."""

    code, rpc_code, exit_status = "SESSION_ARCHIVED", -32012, 8


class DuplicateIDError(Conflict):
    """A row with this id already exists."""

    code = "DUPLICATE_ID"


class IdempotencyMismatch(Conflict):
    """This idempotency key was used before with another request."""

    code = "IDEMPOTENCY_MISMATCH"


class SummaryRevised(Conflict):
    """A revision has taken this summary's place meanwhile. Look at the newest one, and begin there."""

    code = "SUMMARY_REVISED"


class ImmutableFieldError(Conflict):
    """The record is append-only: what was written once cannot be changed or deleted."""

    code = "IMMUTABLE_FIELD"


class ContextChanged(Conflict):
    """The context changed meanwhile: what this was to stand for has left it."""

    code = "CONTEXT_CHANGED"


class TakenOver(Conflict):
    """Another process has taken this over, so nothing of it was written here."""

    code = "TAKEN_OVER"


class AtCapacity(MnesisError):
    """This server runs as many turns as it is allowed to. Try again in a moment."""

    code, status, rpc_code, exit_status = "AT_CAPACITY", 503, -32015, 9


class TurnInterrupted(MnesisError):
    """The server stopped while this turn was running. What had arrived is kept; send a message to go on."""

    code, rpc_code = "TURN_INTERRUPTED", -32017


class CompactionAbandoned(MnesisError):
    """Every process that took this compaction up died over it, so nobody tries again. The next one is a new one."""

    code = "COMPACTION_ABANDONED"


class NotReady(MnesisError):
    """The server is not ready. /readyz says which part is missing."""

    code, status, rpc_code, exit_status = "NOT_READY", 503, -32016, 9


class ModelError(MnesisError):
    """The model call failed."""

    code, status, rpc_code, exit_status = "MODEL_ERROR", 502, -32020, 10
    retriable: ClassVar[bool] = False


class ModelNotConfigured(ModelError):
    """The model has no key. Set the environment variable that its entry names."""

    code = "MODEL_NOT_CONFIGURED"


class ModelAuthenticationFailed(ModelError):
    """The provider refused the key. Check the key that this model's entry names."""

    code = "MODEL_AUTHENTICATION_FAILED"


class ModelRateLimited(ModelError):
    """The provider says: too many requests. Wait, then try again."""

    code, retriable = "MODEL_RATE_LIMITED", True


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
    """The provider says that the context is larger than the model's window. Correct the model's limit."""

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

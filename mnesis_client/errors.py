"""Why the server refuses a request, one class for each code. Made from the server's registry: do not edit.

The class docstring says what happened and what to do; ``message`` is what the server said this time.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ApprovalNotPending",
    "AtCapacity",
    "CallNotFoundError",
    "CompactionNotFoundError",
    "Conflict",
    "ConnectionFailed",
    "ContextChanged",
    "DelegationRefused",
    "DuplicateIDError",
    "FileContentNotFound",
    "FileNotAllowed",
    "FileNotText",
    "FileQuotaExceeded",
    "FileReferenceNotFoundError",
    "IdempotencyMismatch",
    "ImmutableFieldError",
    "InboxFull",
    "InboxMessageNotFoundError",
    "InvalidInput",
    "InvalidRequest",
    "InvalidSchema",
    "InvalidTemplate",
    "MessageNotFoundError",
    "MnesisError",
    "ModelNotFoundError",
    "NotFound",
    "NotInHostMode",
    "NotListed",
    "NotReady",
    "NotSignedIn",
    "OperatorItemNotFoundError",
    "OperatorRunNotFoundError",
    "OperatorRunNotInState",
    "PartNotFoundError",
    "PeerNameTaken",
    "PeerNotFoundError",
    "PermissionDenied",
    "PreviewNotFoundError",
    "RangeNotSatisfiable",
    "RequestTooLarge",
    "SessionArchived",
    "SessionBusy",
    "SessionNotFoundError",
    "SessionNotRunning",
    "SummaryNotFoundError",
    "SummaryRevised",
    "TakenOver",
    "TooManyHops",
    "ToolCallAnswered",
    "ToolCallNotCallers",
    "ToolCallNotFoundError",
    "ToolNotFoundError",
    "ToolServerNotFound",
    "TurnNotFoundError",
    "UploadNotFound",
]


class MnesisError(Exception):
    """The server refused or failed; ``code`` says why."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(
        self, message: str = "", *, code: str = "", status: int = 0, details: dict[str, Any] | None = None
    ) -> None:
        self.message = message or type(self).__doc__ or ""
        self.said_code = code or self.code
        """As the server said it: this class's own, or one that this version of the client does not know."""
        self.status = status
        """Of HTTP; 0 for the error of a turn."""
        self.details = details or {}
        super().__init__(f"{self.said_code}: {self.message}")


class ConnectionFailed(MnesisError):
    """The server cannot be reached, or the connection broke off. What was asked may have been done or not."""

    code = "CONNECTION_FAILED"


class InvalidRequest(MnesisError):
    """The request is not valid."""

    code = "INVALID_REQUEST"


class RequestTooLarge(InvalidRequest):
    """The request is larger than this server accepts. Send less, or upload it as a file."""

    code = "REQUEST_TOO_LARGE"


class FileQuotaExceeded(RequestTooLarge):
    """Your files would take more than you may keep here. Delete sessions whose files you need no more, or ask for more."""

    code = "FILE_QUOTA_EXCEEDED"


class RangeNotSatisfiable(InvalidRequest):
    """The file has no such bytes: the range begins behind its end."""

    code = "RANGE_NOT_SATISFIABLE"


class InvalidTemplate(InvalidRequest):
    """The prompt template cannot be used: it must be a Jinja template that names 'item'."""

    code = "INVALID_TEMPLATE"


class InvalidSchema(InvalidRequest):
    """The output schema is no JSON Schema that can be used here."""

    code = "INVALID_SCHEMA"


class InvalidInput(InvalidRequest):
    """The input is no JSON Lines file that can be read: one JSON value a line, as UTF-8."""

    code = "INVALID_INPUT"


class NotSignedIn(MnesisError):
    """Sign in, or send an API key as 'Authorization: Bearer mns_…'."""

    code = "NOT_SIGNED_IN"


class PermissionDenied(MnesisError):
    """Your account may not do this. Ask an administrator."""

    code = "PERMISSION_DENIED"


class NotListed(PermissionDenied):
    """The host's owner has not listed what this names: a program, a variable with a secret, or an address inside."""

    code = "NOT_LISTED"


class NotFound(MnesisError):
    """There is no such thing here."""

    code = "NOT_FOUND"


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


class FileContentNotFound(NotFound):
    """What is known of this file is here, its content is not: it was never kept, or was left behind by a move."""

    code = "FILE_CONTENT_NOT_FOUND"


class FileNotAllowed(NotFound):
    """No file at this path may be taken in: it is not there, is no ordinary file, or lies outside MNESIS_FILE_ROOTS."""

    code = "FILE_NOT_ALLOWED"


class UploadNotFound(NotFound):
    """There is no such upload any more, or it is not yours. Begin it again."""

    code = "UPLOAD_NOT_FOUND"


class ModelNotFoundError(NotFound):
    """No model has this name. 'manage.py model list' shows the ones there are."""

    code = "MODEL_NOT_FOUND"


class ToolNotFoundError(NotFound):
    """No tool has this name."""

    code = "TOOL_NOT_FOUND"


class ToolCallNotFoundError(NotFound):
    """This turn made no tool call with this id. Read the turn: waits_for names the calls."""

    code = "TOOL_CALL_NOT_FOUND"


class ToolServerNotFound(NotFound):
    """No server of tools has this name. 'manage.py mcp_server list' shows the ones there are."""

    code = "TOOL_SERVER_NOT_FOUND"


class PeerNotFoundError(NotFound):
    """No session of yours in host mode has this name."""

    code = "PEER_NOT_FOUND"


class InboxMessageNotFoundError(NotFound):
    """There is no such message in an inbox, or it is not yours."""

    code = "INBOX_MESSAGE_NOT_FOUND"


class OperatorRunNotFoundError(NotFound):
    """There is no such run of an operator, or it is not yours."""

    code = "OPERATOR_RUN_NOT_FOUND"


class OperatorItemNotFoundError(NotFound):
    """The run has no item of this number."""

    code = "OPERATOR_ITEM_NOT_FOUND"


class Conflict(MnesisError):
    """The thing is in a state that forbids this."""

    code = "CONFLICT"


class SessionBusy(Conflict):
    """A turn is already running in this session. Wait for it, or interrupt it."""

    code = "SESSION_BUSY"


class SessionNotRunning(Conflict):
    """No turn is running in this session, so there is nothing to interrupt."""

    code = "SESSION_NOT_RUNNING"


class SessionArchived(Conflict):
    """This session is archived. It can be read and exported; fork it to go on."""

    code = "SESSION_ARCHIVED"


class ApprovalNotPending(Conflict):
    """This tool call does not wait for an approval: it was decided already, or needs none."""

    code = "APPROVAL_NOT_PENDING"


class ToolCallAnswered(Conflict):
    """This tool call has its result already."""

    code = "TOOL_CALL_ANSWERED"


class ToolCallNotCallers(Conflict):
    """This tool runs here, so its result does not come from the caller."""

    code = "TOOL_CALL_NOT_CALLERS"


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


class NotInHostMode(Conflict):
    """This session is not in host mode, so it takes no messages. Set host_mode, or start a turn."""

    code = "NOT_IN_HOST_MODE"


class PeerNameTaken(Conflict):
    """Another session of yours in host mode has this name. Choose another peer_name."""

    code = "PEER_NAME_TAKEN"


class TooManyHops(Conflict):
    """Too many agents have answered each other without a word of a person (inbox.max_hops), so this was not sent."""

    code = "TOO_MANY_HOPS"


class FileNotText(Conflict):
    """This file holds bytes, no lines of text. Read a range of its bytes, or what its exploration found."""

    code = "FILE_NOT_TEXT"


class OperatorRunNotInState(Conflict):
    """The run is in a state that forbids this. Read it: its state says how far it is."""

    code = "OPERATOR_RUN_NOT_IN_STATE"


class ContextChanged(Conflict):
    """The context changed meanwhile: what this was to stand for has left it."""

    code = "CONTEXT_CHANGED"


class DelegationRefused(Conflict):
    """This may not be handed to a sub-agent."""

    code = "DELEGATION_REFUSED"


class TakenOver(Conflict):
    """Another process has taken this over, so nothing of it was written here."""

    code = "TAKEN_OVER"


class AtCapacity(MnesisError):
    """This server runs as many turns as it is allowed to. Try again in a moment."""

    code = "AT_CAPACITY"


class InboxFull(AtCapacity):
    """Too many messages wait in this session's inbox (inbox.waiting). Try again when it has read some."""

    code = "INBOX_FULL"


class NotReady(MnesisError):
    """The server is not ready. /readyz says which part is missing."""

    code = "NOT_READY"

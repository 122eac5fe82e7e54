"""Every error of the product.

The docstring of a class is its default message. Every endpoint reads the class attributes: ``code`` (stable, public,
made of the class's name unless the class sets it), ``status`` (HTTP), ``rpc_code`` (JSON-RPC 2.0) and ``exit_status``
(commands).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

Number = int | float
Values = Mapping[str, str | Number]


def gettext_noop(text: str) -> str:
    """Mark a text for ``makemessages``: a page translates it when it shows it."""
    return text


def fill(text: str, values: Values, write: Callable[[Number], str] = "{:,}".format) -> str:
    """Return a text with its values in place of ``%(name)s``. A text without values stays as it is, with its percent signs."""
    if not values:
        return text
    return text % {name: value if isinstance(value, str) else write(value) for name, value in values.items()}


class Phrase(str):
    """A value that is a text of ours with values of its own: English for programs, and translated where a page shows it."""

    text: str
    values: Values

    def __new__(cls, text: str, values: Values | None = None) -> Phrase:
        phrase = super().__new__(cls, fill(text, values or {}))
        phrase.text, phrase.values = text, values or {}
        return phrase


def reason_of(error: Exception) -> str:
    """Return what an exception says: as a phrase, if it was raised with one."""
    said = error.args[0] if error.args else ""
    return said if isinstance(said, Phrase) else str(error)


class MnesisError(Exception):
    """Something went wrong inside Mnesis. The server's log has the details."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    rpc_code: ClassVar[int] = -32603
    exit_status: ClassVar[int] = 1
    retry_after: ClassVar[int] = 0  # Seconds for the HTTP header ``Retry-After``; 0 for no header.

    def __init_subclass__(cls) -> None:
        # ``SessionNotFoundError`` has the code ``SESSION_NOT_FOUND``. A subclass in another module keeps its base's code.
        if cls.__module__ == __name__ and "code" not in vars(cls):
            cls.code = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).upper()

    def __init__(self, message: str = "", values: Values | None = None, /, **details: Any) -> None:
        # Pages translate the text before its values are filled in. Only ``details`` are told to programs.
        self.text = message or " ".join((type(self).__doc__ or "").split())
        self.values = values or {}
        self.message = fill(self.text, self.values)
        self.details = details
        super().__init__(self.message)

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "details": self.details}


class InvalidRequest(MnesisError):
    """The request is not valid."""

    status, rpc_code, exit_status = 422, -32602, 2


class TurnsNotAdjacent(InvalidRequest):
    """These turns are not adjacent in the context: other turns or a summary lie between them. Name adjacent turns."""


class RequestTooLarge(InvalidRequest):
    """The request is larger than this server accepts. Send less, or upload it as a file."""

    status, rpc_code, exit_status = 413, -32013, 2


class FileQuotaExceeded(RequestTooLarge):
    """Your files would exceed your storage limit. Delete sessions whose files you no longer need, or ask an administrator for more space."""


class InvalidPicture(InvalidRequest):
    """This is not a valid picture, PDF or audio file. Send a complete PNG, JPEG, WebP, GIF, PDF, WAV or MP3."""


class RemotePicture(InvalidRequest):
    """Pictures and documents are not fetched from other addresses. Send the bytes: as a data: URL, or as a file of the session."""


class PictureNotFetched(InvalidRequest):
    """The picture or document cannot be fetched from its address. Check the address, or send the bytes: as a data: URL, or as a file of the session."""


class RequestTimeout(InvalidRequest):
    """The request's body arrived too slowly. Send it again over a faster connection, or in smaller pieces."""

    status, rpc_code, exit_status = 408, -32027, 2


class RangeNotSatisfiable(InvalidRequest):
    """The requested range begins after the end of the file."""

    status, rpc_code, exit_status = 416, -32602, 2


class UnknownParameter(InvalidRequest):
    """The address has a query parameter that this endpoint does not know. Leave it out, or correct its name."""


class ParameterNotSupported(InvalidRequest):
    """The model does not support this parameter. Leave it out, ask another model, or set turn.unsupported_parameters to drop."""


class GatewayProtocol(InvalidRequest):
    """The gateway passes a request on as it is, and the model's provider does not speak this protocol."""


class InvalidTemplate(InvalidRequest):
    """The prompt template cannot be used: it must be a Jinja template that names 'item'."""


class InvalidSchema(InvalidRequest):
    """The output schema is not a JSON Schema that can be used here."""


class InvalidInput(InvalidRequest):
    """The input cannot be read as JSON Lines: one JSON value per line, in UTF-8."""


class QuoteNotFound(InvalidRequest):
    """The quotation was not found there. A fact must quote one part of a message character by character."""


class NotSignedIn(MnesisError):
    """Sign in, or send an API key as 'Authorization: Bearer mns_…'."""

    status, rpc_code, exit_status = 401, -32001, 3


class PermissionDenied(MnesisError):
    """Your account does not have permission for this. Ask an administrator."""

    status, rpc_code, exit_status = 403, -32003, 3


class WrongOrganisation(PermissionDenied):
    """This API key was made in an organisation that your account has left. Make a new one."""


class DeletionNotPermitted(PermissionDenied):
    """Deleting sessions is not permitted on this site. Archive it instead, or ask an administrator."""


class SharingNotPermitted(PermissionDenied):
    """Sharing sessions like this is not permitted on this site. Choose other people, or ask an administrator."""


class TemporaryNotPermitted(PermissionDenied):
    """Temporary chats are not permitted on this site. Start a session instead, or ask an administrator."""


class ProjectNotYours(PermissionDenied):
    """Only the owner of the project can do this."""


class AssistantNotYours(PermissionDenied):
    """Only the owner of the assistant can do this."""


class SavedPromptNotYours(PermissionDenied):
    """Only the owner of the saved prompt can do this."""


class HoldingNotPermitted(PermissionDenied):
    """Holding facts for an organisation needs a permission that you do not have. Ask an administrator, or hold the fact for yourself."""


class NotListed(PermissionDenied):
    """The host's owner has not listed the program, the secret's variable or the internal address that this names."""


class NotFound(MnesisError):
    """Not found."""

    status, rpc_code, exit_status = 404, -32004, 4


class SessionNotFoundError(NotFound):
    """There is no such session, or it is not yours."""


class SessionInTrash(SessionNotFoundError):
    """This session is in the trash. Restore it to use it again."""


class TurnNotFoundError(NotFound):
    """There is no such turn, or it is not yours."""


class MessageNotFoundError(NotFound):
    """There is no such message, or it is not yours."""


class ShareNotFoundError(NotFound):
    """There is no such share, or it is not yours."""


class ProjectNotFoundError(NotFound):
    """There is no such project, or you are not a member of it."""


class ProjectMemberNotFoundError(NotFound):
    """The project has no such member."""


class AssistantNotFoundError(NotFound):
    """There is no such assistant, or it is not shared with you."""


class SavedPromptNotFoundError(NotFound):
    """There is no such saved prompt, or it is not shared with you."""


class SharedLinkNotFound(NotFound):
    """This link does not work. It may be mistyped, revoked or expired, its session may have been deleted, or it may be for other people. Ask the person who sent it."""


class SavedViewNotFoundError(NotFound):
    """There is no such saved view."""


class BranchNotFoundError(NotFound):
    """The session has no such branch."""


class PartNotFoundError(NotFound):
    """There is no such message part, or it is not yours."""


class CallNotFoundError(NotFound):
    """There is no such model call, or it is not yours."""


class SummaryNotFoundError(NotFound):
    """There is no such summary, or it is not yours."""


class FactNotFoundError(NotFound):
    """There is no such fact, or it is not yours."""


class PreviewNotFoundError(NotFound):
    """There is no such preview, or it is not yours."""


class CompactionNotFoundError(NotFound):
    """There is no such compaction, or it is not yours."""


class FileReferenceNotFoundError(NotFound):
    """There is no such file, or it is not yours."""

    code = "FILE_NOT_FOUND"


class FileContentNotFound(NotFound):
    """The content of this file is not available: it was never stored, or was left behind by a move. Its description is still available."""


class FileNotAllowed(NotFound):
    """No file at this path can be added: it does not exist, is not an ordinary file, or lies outside MNESIS_FILE_ROOTS."""


class EvaluationNotFound(NotFound):
    """There is no such report of an evaluation."""


class UploadNotFound(NotFound):
    """This upload no longer exists, or it is not yours. Start it again."""


class ModelNotFoundError(NotFound):
    """No model has this name. 'manage.py model list' shows all models."""


class ToolNotFoundError(NotFound):
    """No tool has this name."""


class ToolCallNotFoundError(NotFound):
    """This turn made no tool call with this id. Read the turn: waits_for names the calls."""


class ToolServerNotFound(NotFound):
    """No tool server has this name. 'manage.py mcp_server list' shows all of them."""


class PeerNotFoundError(NotFound):
    """No session of yours in host mode has this name."""


class InboxMessageNotFoundError(NotFound):
    """There is no such message in an inbox, or it is not yours."""


class OperatorRunNotFoundError(NotFound):
    """There is no such operator run, or it is not yours."""


class OperatorItemNotFoundError(NotFound):
    """The run has no item with this number."""


class Conflict(MnesisError):
    """This is not possible in the current state."""

    status, rpc_code, exit_status = 409, -32009, 5


class SessionBusy(Conflict):
    """A turn is already running in this session. Wait for it, or interrupt it."""

    rpc_code, exit_status = -32010, 6
    waiting = gettext_noop(
        "A turn of this session is waiting for an approval, an answer, or results of its caller's tools. Answer it, or interrupt it."
    )

    def __init__(self, message: str = "", values: Values | None = None, /, **details: Any) -> None:
        super().__init__(message or (self.waiting if details.get("state") == "suspended" else ""), values, **details)


class SessionNotRunning(Conflict):
    """No turn is running in this session, so there is nothing to interrupt."""

    rpc_code, exit_status = -32011, 7


class SessionArchived(Conflict):
    """This session is archived. It can be read and exported; fork it to continue."""

    rpc_code, exit_status = -32012, 8


class SessionTemporary(Conflict):
    """A temporary chat cannot do this, because it stays apart from your other sessions. Keep it first."""


class ApprovalNotPending(Conflict):
    """This tool call is not waiting for an approval: it was already decided, or needs none."""


class ToolCallAnswered(Conflict):
    """This tool call already has its result."""


class ToolCallNotCallers(Conflict):
    """This tool runs here, so its result does not come from the caller."""


class DuplicateIDError(Conflict):
    """A row with this id already exists."""


class IdempotencyMismatch(Conflict):
    """This idempotency key was used before with another request."""


class EvaluationBusy(Conflict):
    """A worker is evaluating a session already. Start another one when it has ended, or use 'manage.py evaluate_memory'."""


class SummaryRevised(Conflict):
    """A revision has replaced this summary in the meantime. Open the newest one and start from there."""


class AccountChanged(Conflict):
    """Someone else has changed this account in the meantime. Review the current values, then make your change again."""


class FactNotLive(Conflict):
    """This fact was superseded or withdrawn earlier and can no longer change. Use the live one."""


class FactIsCopy(Conflict):
    """This fact is a copy from another session. Hold the original fact there."""


class ImmutableFieldError(Conflict):
    """The record is append-only: what has been written cannot be changed or deleted."""


class NotInHostMode(Conflict):
    """This session is not in host mode, so it takes no messages. Set host_mode, or start a turn."""


class SavedPromptNameTaken(Conflict):
    """Another saved prompt of yours has this name. Choose another name."""


class SavedViewNameTaken(Conflict):
    """Another saved view of yours has this name. Choose another name, or replace that view."""


class PeerNameTaken(Conflict):
    """Another session of yours in host mode has this name. Choose another peer_name."""


class CompactionBusy(Conflict):
    """Another compaction of this session has not ended. Name the turns again when it has."""


class TurnNotOnBranch(Conflict):
    """This turn is on another branch than the chosen one. Choose its branch, or name turns of this one."""


class TurnNotEnded(Conflict):
    """This turn has not ended, so it cannot be compacted. Name it when it has, or leave it out."""


class TurnSummarised(Conflict):
    """A summary already covers messages of this turn. Leave it out; the context shows what is still verbatim."""


class TurnProtected(Conflict):
    """This turn has messages that stay verbatim, since they are among the newest (compaction.protect_fraction). Leave it out."""


class TurnsTooSmall(Conflict):
    """These turns are so short that a summary would hardly be shorter. Name more of them together."""


class TooManyHops(Conflict):
    """Too many agents have answered each other without a message from a person (inbox.max_hops), so this message was not sent."""


class FileNotText(Conflict):
    """This file holds bytes, not lines of text. Read a range of its bytes, or what its exploration found."""


class OperatorRunNotInState(Conflict):
    """The run's state forbids this. Read the run to see its state."""


class ContextChanged(Conflict):
    """The context changed in the meantime: what this was to replace has left it."""


class DelegationRefused(Conflict):
    """This cannot be delegated to a sub-agent."""


class TakenOver(Conflict):
    """Another process has taken over, so nothing was written here."""


class AtCapacity(MnesisError):
    """This server is running the maximum number of turns. Try again in a moment."""

    status, rpc_code, exit_status = 503, -32015, 9


class InboxFull(AtCapacity):
    """Too many messages are waiting in this session's inbox (inbox.waiting). Try again when it has read some."""

    rpc_code = -32023


class PasswordsBusy(AtCapacity):
    """Too many people are signing in at the same moment. Try again in a few seconds."""


class TooManyRequests(MnesisError):
    """You have sent too many requests. Wait, then try again."""

    status, rpc_code, exit_status = 429, -32025, 9


class TooManyTurns(TooManyRequests):
    """You have reached the limit of running turns for one person. Wait until one has ended."""

    rpc_code = -32026


class TooManyAttempts(TooManyRequests):
    """Too many wrong passwords. Wait, then try again."""

    rpc_code = -32024


class NotReady(MnesisError):
    """The server is not ready. /readyz says which part is missing."""

    status, rpc_code, exit_status = 503, -32016, 9


class DatabaseUnavailable(NotReady):
    """The database did not respond. Try again with the same idempotency key."""

    retry_after = 2


class MigrationsMissing(NotReady):
    """The database lacks migrations. Run 'manage.py migrate' as the owner of its tables, then try again."""


class StorageFull(NotReady):
    """The server's disk is full, so nothing was written. Try again when there is space. Reading still works."""

    status, retry_after = 507, 30


# How a turn, a compaction, a tool or a model call ended.


class TurnInterrupted(MnesisError):
    """The server stopped while this turn was running. What had arrived is kept; send a message to continue."""

    rpc_code = -32017


class TurnCancelled(MnesisError):
    """The turn was interrupted. What was said is kept; send a message to go on."""

    status, rpc_code, exit_status = 409, -32019, 130  # 130 is what a shell reports of a program that Ctrl-C ended.


class TurnSuspended(MnesisError):
    """The turn is waiting for a person to approve a tool call or answer a question, or for results of the caller's tools."""

    status, rpc_code, exit_status = 409, -32021, 13


class BudgetExhausted(MnesisError):
    """A spending limit has been reached. What was said is kept. Ask an administrator to raise it."""

    status, rpc_code, exit_status = 429, -32018, 11


class StepLimitReached(MnesisError):
    """The turn stopped at its limit of model calls. Send a message to go on."""


class DoomLoop(MnesisError):
    """The model made the same call again and again, so the turn was stopped. Send a message to go on."""


class CompactionAbandoned(MnesisError):
    """Every process that ran this compaction died, so it is not retried. The next compaction starts over."""


class EvaluationFailed(MnesisError):
    """The evaluation process ended before it was done. See its standard error for the reason."""


class DelegationFailed(MnesisError):
    """The sub-agent gave no answer. See its session for the reason."""

    status, rpc_code, exit_status = 502, -32022, 1


class ToolFailed(MnesisError):
    """The tool reported a failure."""

    status, rpc_code, exit_status = 502, -32030, 12


class ToolServerUnreachable(MnesisError):
    """The server of this tool cannot be reached. Run 'manage.py mcp_server check NAME' to see why."""

    status, rpc_code, exit_status = 502, -32031, 12


class ModelError(MnesisError):
    """The model call failed."""

    code, status, rpc_code, exit_status = "MODEL_ERROR", 502, -32020, 10
    retriable: ClassVar[bool] = False


class ModelNotConfigured(ModelError):
    """The model has no key. Enter one on the page *Models*, or set the environment variable that its entry names."""


class ModelNotAllowed(ModelError):
    """The model's entry names a variable or an address that the host's owner has not listed, or its stored key cannot be read any more."""


class ModelAuthenticationFailed(ModelError):
    """The provider refused the key. Check the key that this model's entry names."""


class ModelRateLimited(ModelError):
    """The provider received too many requests. Wait, then try again."""

    status, retriable = 429, True


class ModelUnreachable(ModelError):
    """The model's server cannot be reached. Check its address, and that it is running."""

    retriable = True


class ModelTimeout(ModelError):
    """The model did not answer in time."""

    retriable = True


class ModelRefusedRequest(ModelError):
    """The provider refused the request."""


class ContextWindowExceeded(ModelRefusedRequest):
    """The provider says that the prompt is too long for the model. Send less at once, or attach it as a file; or correct
    the model's limit."""


class ModelUnavailable(ModelError):
    """The provider answered with a server error. Try again in a moment."""

    retriable = True


class ModelStreamBroken(ModelError):
    """The answer broke off. What arrived is kept; send a message to go on."""


class ModelReplyIncomplete(ModelError):
    """The stream ended without proof that the answer is whole. What arrived is kept."""


class AnswerRefused(ModelError):
    """The model declined to answer, or its provider's filter stopped it. What was said is kept. Ask in another way, or
    choose another model."""


class ResponseFormatNotMet(ModelError):
    """The model did not answer in the format that was asked for, even after it was told what is wrong. What it said is kept."""


class ModelCallAbandoned(ModelError):
    """The process that asked ended before the answer was written."""


def error_of(code: str, message: str = "", **details: Any) -> MnesisError:
    """Return the error that a stored code stands for: a ``MnesisError`` for a code that this version does not know."""
    return _kinds(MnesisError).get(code, MnesisError)(message, **details)


def _kinds(kind: type[MnesisError]) -> dict[str, type[MnesisError]]:
    # Where several classes share a code, the base class of all of them stands for it.
    found: dict[str, type[MnesisError]] = {}
    for child in kind.__subclasses__():
        found |= _kinds(child)
    return found | {kind.code: kind}

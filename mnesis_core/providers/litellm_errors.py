"""What went wrong in a call through litellm, in our own errors and in words for the page.

litellm dresses most faults as its own exceptions with an invented status of 500, so the chain of causes is read first
and the status last. No message holds the key, even when a provider repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mnesis_core.errors import (
    ContextWindowExceeded,
    ModelAuthenticationFailed,
    ModelError,
    ModelNotAllowed,
    ModelNotConfigured,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelStreamBroken,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
    NotListed,
    fill,
    gettext_noop,
)
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.tokens import is_too_long
from mnesis_core.providers.credentials import host_of
from mnesis_core.text import printable

LONGEST_QUOTE = 300  # characters of a provider's own words that a message repeats
LONGEST_CHAIN = 20
BROKE_OFF = gettext_noop("The answer broke off in the middle.")
LONGEST_RETRY_AFTER = 40  # Characters of the header: an HTTP date has 29.

_PREFIX = re.compile(r"^(?:litellm\.|\w+Error: |\w*Exception - |\w+: (?=\w+Error|\w*Exception))+")
_KEY_SHAPED = re.compile(r"\b(?:Bearer\s+\S+|(?:sk|pk|rk|gsk|xai|AIza|hf)[-_][\w*.-]{6,})", re.IGNORECASE)
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error"}  # OpenAI's code, and llama.cpp's type
_MAY_PASS = (408, 425)  # Request timeout, too early: the server asks for the same again.
# Without the provider's own words, which tend to repeat parts of the key.
_AUTHENTICATION = {
    401: gettext_noop("The provider refused the key. Check the key that this model's entry names."),
    403: gettext_noop(
        "The provider says that this key may not use this model. Check the key's rights, or choose another model."
    ),
}


def model_error(error: Exception, spec: ModelSpec, *, has_begun: bool) -> ModelError:
    import httpx
    import openai
    from litellm.exceptions import Timeout

    causes = tuple(_chain(error))
    if refusal := next((cause for cause in causes if isinstance(cause, NotListed)), None):
        return ModelNotAllowed(refusal.message, model=spec.alias)
    unreachable = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
    if any(isinstance(cause, unreachable) for cause in causes):
        return unreachable_error(spec)
    # A 408 is an answer, though litellm calls it a timeout too.
    is_answer = any(isinstance(cause, httpx.HTTPStatusError) for cause in causes)
    silence = (TimeoutError, httpx.TimeoutException, Timeout)
    if not is_answer and any(isinstance(cause, silence) for cause in causes):
        text = said_nothing(spec)
        return ModelTimeout(f"{text} {_what_next(has_begun)}", model=spec.alias)
    says = _provider_says(causes, spec.api_key)
    if has_begun:
        is_event = any(type(cause) is openai.APIError for cause in causes)
        is_unreadable = any(isinstance(cause, ValueError) for cause in causes)
        reasons = (
            (is_event, gettext_noop("The provider reported an error.")),
            (is_unreadable, gettext_noop("What the server sent cannot be read.")),
            (_is_cut_connection(causes), gettext_noop("The connection was cut.")),
        )
        why = next((text for applies, text in reasons if applies), "")
        says = says if is_event else ""
        return ModelStreamBroken(_joined(BROKE_OFF, why, _quote(says), _what_next(True)), model=spec.alias)
    status = _status(causes)
    if status is None and _is_cut_connection(causes):
        return ModelUnreachable(
            gettext_noop("The model's server closed the connection without an answer."), model=spec.alias
        )
    return _refusal(causes, status, says, spec)


def out_of_time(spec: ModelSpec, seconds: float, *, has_begun: bool) -> ModelTimeout:
    text = fill(
        gettext_noop("The answer was not whole after %(seconds)s seconds, and was stopped."),
        {"seconds": f"{round(seconds, 1):g}"},
    )
    return ModelTimeout(f"{text} {_what_next(has_begun)}", model=spec.alias)


def _refusal(causes: tuple[BaseException, ...], status: int | None, says: str, spec: ModelSpec) -> ModelError:
    from litellm.exceptions import ContextWindowExceededError

    details: dict[str, Any] = {"model": spec.alias, "status": status}
    codes = {str(_body(cause).get(key)) for cause in causes for key in ("code", "type")}
    if status == 402 or "insufficient_quota" in codes:
        start = gettext_noop("The provider says that the account has no credit left. Look at its plan and billing.")
        return ModelRefusedRequest(quoted(start, says), **details)
    answers = (getattr(getattr(cause, "response", None), "headers", None) or {} for cause in causes)
    if waits := [str(headers["retry-after"]) for headers in answers if "retry-after" in headers]:
        details["retry_after"] = waits[0][:LONGEST_RETRY_AFTER]
    if status is None:
        text = gettext_noop("The model call failed on this server, before or after the provider: %(says)s")
        return ModelError(text, {"says": says}, **details)
    is_too_large = bool(codes & _TOO_LONG_CODES) or any(
        isinstance(cause, ContextWindowExceededError) for cause in causes
    )
    if is_too_large or (status in (400, 413, 422, 500) and is_too_long(says)):
        return ContextWindowExceeded(quoted(ContextWindowExceeded().message, says), **details)
    if status >= 500 or status in _MAY_PASS:
        return ModelUnavailable(quoted(ModelUnavailable().message, says), **details)
    if status == 429:
        start = gettext_noop("There were too many requests to this model. Wait, then try again.")
        return ModelRateLimited(quoted(start, says), **details)
    if status in _AUTHENTICATION:
        return ModelAuthenticationFailed(_AUTHENTICATION[status], **details)
    return _refused(status, says, spec, details)


def _refused(status: int, says: str, spec: ModelSpec, details: dict[str, Any]) -> ModelError:
    # Internal: litellm says so when it knows no such provider; its status is a plain 400.
    if "LLM Provider NOT provided" in says:
        return ModelNotConfigured(
            gettext_noop(
                "No provider is known by the name '%(model)s'. Write the model as provider/name, such as openai/gpt-4o, or openai/… with an address for any server that speaks OpenAI's protocol."
            ),
            {"model": spec.litellm_model},
            model=spec.alias,
        )
    if status == 404:
        start = fill(
            gettext_noop("The provider does not know the model '%(model)s' at this address."),
            {"model": spec.litellm_model},
        )
        end = gettext_noop("Check the model's name and its address.")
        return ModelRefusedRequest(_joined(start, _quote(says), end), **details)
    if status < 400:
        start = gettext_noop(
            "The model's address redirects to another one, which is not followed. Enter the final address."
        )
        return ModelRefusedRequest(start, **details)
    return ModelRefusedRequest(quoted(ModelRefusedRequest().message, says), **details)


def _what_next(has_begun: bool) -> str:
    if has_begun:
        return gettext_noop("What arrived is kept; send a message to go on.")
    return gettext_noop("Try again, or choose another model.")


def unreachable_error(spec: ModelSpec) -> ModelUnreachable:
    host = host_of(spec.api_base)
    where = gettext_noop("The model's server cannot be reached.")
    if host:
        where = fill(gettext_noop("No model server answers at %(host)s."), {"host": host})
    end = gettext_noop("Check the model's address, and that its server runs.")
    return ModelUnreachable(_joined(where, end), model=spec.alias)


def said_nothing(spec: ModelSpec) -> str:
    text = gettext_noop("The model said nothing for %(seconds)s seconds.")
    return fill(text, {"seconds": f"{spec.timeout_seconds:g}"})


def quoted(start: str, says: str) -> str:
    """Return a sentence and what the provider says, in which a page finds both again to translate them."""
    return _joined(start, _quote(says))


def _quote(says: str) -> str:
    return fill(gettext_noop('The provider says: "%(quote)s"'), {"quote": says}) if says else ""


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(LONGEST_CHAIN):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _is_cut_connection(causes: tuple[BaseException, ...]) -> bool:
    import httpx

    return any(isinstance(cause, httpx.TransportError) for cause in causes)


def _status(causes: tuple[BaseException, ...]) -> int | None:
    """Return the HTTP status that really came, or the one that an error inside a stream names."""
    import httpx
    import openai
    from litellm.exceptions import APIConnectionError, MidStreamFallbackError

    for cause in reversed(causes):
        if isinstance(cause, httpx.HTTPStatusError):
            return cause.response.status_code
        if type(cause) is openai.APIError:
            # An error event in a stream that had begun with 200; its code may be a status or a word.
            return _as_status(_body(cause).get("code")) or 500
    if _is_cut_connection(causes):
        return None
    # litellm wraps whatever it did not expect in these two, with a status that means nothing.
    named = [each for each in causes if not isinstance(each, APIConnectionError | MidStreamFallbackError)]
    return next((status for each in named if (status := _as_status(getattr(each, "status_code", None)))), None)


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:4])
    return value if isinstance(value, int) and 300 <= value < 600 else None


def _body(error: object) -> dict[str, Any]:
    body = getattr(error, "body", None)
    return body if isinstance(body, dict) else {}


def _provider_says(causes: tuple[BaseException, ...], api_key: str) -> str:
    """Return the provider's own words, on one line, short, without the key; empty when it sent a web page."""
    bodies = (_body(cause).get("message") for cause in causes)
    words = next((body for body in bodies if isinstance(body, str) and body), None)
    text = words if words is not None else _PREFIX.sub("", str(getattr(causes[0], "message", causes[0])))
    text = text.partition("Traceback (most recent call last)")[0]
    text = " ".join(printable(text[: 20 * LONGEST_QUOTE]).replace("\x00", "").split())
    if "<html" in text.lower() or "<!doctype" in text.lower():
        return ""
    if len(api_key) >= 4:
        text = text.replace(api_key, "[key]")
    return _KEY_SHAPED.sub("[key]", text)[:LONGEST_QUOTE].rstrip()

"""What a door answers for any exception: errors of ours as they are, a database that is away, hostile values, mistakes."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pydantic import ValidationError

from mnesis_core.errors import InvalidRequest, MnesisError
from sessions_app.database import drop_broken
from sessions_app.outages import log_outage, outage_of

logger = logging.getLogger(__name__)

LONGEST_FIELD = 200
"""Characters of a field's path that are repeated: a caller may have written a key of any length."""
Wrong = tuple[str, str]
"""The path of a field as the caller wrote it, and what is wrong with it."""


def as_error(exception: Exception, *, asked: str) -> MnesisError:
    """The error that a caller may see; ``asked`` says in the log what they wanted.

    Of an unexpected exception the log has everything and the caller nothing.
    """
    if isinstance(exception, MnesisError):
        return exception
    if outage := outage_of(exception):
        drop_broken(exception)
        log_outage(logger, f"Requests are answered {outage.code}", exception)
        return outage
    if isinstance(exception, ValidationError):
        return invalid_fields((".".join(map(str, item["loc"])), str(item["msg"])) for item in exception.errors())
    if isinstance(exception, RecursionError):
        return InvalidRequest("The body is nested too deeply.")
    if isinstance(exception, UnicodeError):
        return InvalidRequest("The request has text that is not valid Unicode.")
    logger.error("%s failed", asked, exc_info=exception)
    return MnesisError()


def invalid_fields(wrong: Iterable[Wrong]) -> InvalidRequest:
    """Names each field that is wrong, and why; never repeats the value, which may be large or secret."""
    named = [{"field": field[:LONGEST_FIELD], "problem": problem} for field, problem in wrong]
    sentence = "; ".join(f"{item['field']}: {item['problem']}" for item in named[:3])
    return InvalidRequest(f"The request is not valid. {sentence}", errors=named)

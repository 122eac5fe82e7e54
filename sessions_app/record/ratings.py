"""Ratings: what the owner of a session says of its answers. Each is a row of its own, and the newest of a message counts."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.translation import gettext_noop

from mnesis_core.errors import InvalidRequest, MessageNotFoundError
from mnesis_core.records import RatingRecord, Thumb, record_of
from mnesis_core.text import encode_text
from sessions_app.models import Message, Rating
from sessions_app.record import message_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session

ASSISTANT = "assistant"
LONGEST_COMMENT = 4_000


def rate_answer(session_id: str, message_id: str, *, owner_id: int, thumb: Thumb, comment: str = "") -> RatingRecord:
    """Rate an answer, or take its rating back, and return the rating that counts now. The same one again writes nothing.

    :raises SessionNotFoundError: it does not exist or belongs to another person.
    :raises MessageNotFoundError: the session has no such message.
    :raises InvalidRequest: the message is no answer, there is nothing to take back, or a comment comes without a thumb.
    """
    session = load_session(session_id, owner_id=owner_id)
    role = (
        Message.objects.filter(session_id=session.id, id=encode_text(message_id)).values_list("role", flat=True).first()
    )
    if role is None:
        raise MessageNotFoundError(message_id=message_id)
    if role != ASSISTANT:
        raise InvalidRequest(gettext_noop("Only an answer can be rated"), field="message_id")
    if comment and thumb is Thumb.NONE:
        raise InvalidRequest(gettext_noop("A comment needs a thumb"), field="comment")
    with change(session.id) as record:  # it locks the session, so of two ratings at once one is the newer
        current = current_ratings().filter(message_id=message_id).first()
        if current is None and thumb is Thumb.NONE:
            raise InvalidRequest(gettext_noop("This answer has no rating to take back"), field="thumb")
        if current is None or (current.thumb, current.comment) != (thumb, comment):
            message_store.rate_message(record, message_id, thumb=thumb, comment=comment)
    return _record(current_ratings().get(message_id=message_id))


def list_ratings(
    session_id: str, *, owner_id: int, message_id: str | None = None, before: int | None = None, limit: int
) -> list[RatingRecord]:
    """Return the ratings of a session that count, newest first.

    :param message_id: only the rating of this message
    :param before: the ``rated_seq`` of a rating; only older ones are returned
    :raises SessionNotFoundError: it does not exist or belongs to another person.
    """
    session = load_session(session_id, owner_id=owner_id)
    rows = current_ratings().filter(session_id=session.id).exclude(thumb=Thumb.NONE).order_by("-rated_seq")
    if message_id is not None:
        rows = rows.filter(message_id=encode_text(message_id))
    return [_record(row) for row in (rows.filter(rated_seq__lt=before) if before else rows)[:limit]]


def thumb_of(message: OuterRef) -> Subquery:
    """Return the thumb of a message, as a column of a query of messages; ``None`` if it was never rated."""
    return Subquery(Rating.objects.filter(message_id=message).order_by("-rated_seq").values("thumb")[:1])


def current_ratings() -> QuerySet[Any]:
    """Return the ratings that count, of all sessions; of those that were taken back the thumb is empty."""
    newest = Rating.objects.filter(message_id=OuterRef("message_id")).order_by("-rated_seq").values("id")[:1]
    return Rating.objects.filter(id=Subquery(newest))


def _record(row: Any) -> RatingRecord:
    return record_of(RatingRecord, row, thumb=Thumb(row.thumb))

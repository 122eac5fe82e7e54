"""The only writer of shares and of their openings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mnesis_core.events import DirectoryType, EventType
from mnesis_core.network.sharing import Audience
from mnesis_core.records import new_id
from sessions_app.database.tables import Table
from sessions_app.models import Share, ShareOpening
from sessions_app.record.change import Change
from sessions_app.record.session_store import enter_at_end

_SHARES, _OPENINGS = Table(Share), Table(ShareOpening)


def create_share(
    record: Change,
    message_id: str,
    *,
    title: str,
    audience: Audience,
    people: Sequence[str] = (),
    expires_at: datetime | None = None,
) -> str:
    """Share a session up to a message, which the caller knows to be one of its own, and return the share's id."""
    row = _SHARES.row(
        id=new_id("share"),
        session_id=record.session_id,
        message_id=message_id,
        title=title,
        audience=audience.value,
        people=list(people),
        added_seq=record.next_seq,
        created_at=record.now,
        expires_at=expires_at,
    )
    record.insert(_SHARES, row)
    record.publish(EventType.SHARE_CREATED, share_id=row.id, message_id=message_id, audience=audience.value)
    return str(row.id)


def revoke_share(record: Change, share_id: str) -> None:
    """Revoke a share of the session; one that is revoked already stays as it is."""
    if record.update(_SHARES, {"revoked_at": record.now}, id=share_id, revoked_at=None):
        record.publish(EventType.SHARE_REVOKED, share_id=share_id)


def add_opening(record: Change, share_id: str, *, reader: str, day: int) -> None:
    """Record that a share was opened on a day, once. That is no activity of the session's owner."""
    if record.find(_OPENINGS, "id", share_id=share_id, reader=reader, day=day):
        return
    row = _OPENINGS.row(
        id=new_id("opening"),
        share_id=share_id,
        session_id=record.session_id,
        reader=reader,
        day=day,
        opened_at=record.now,
    )
    record.insert(_OPENINGS, row)
    record.is_activity = False
    record.publish(EventType.SHARE_OPENED, share_id=share_id)
    # The directory finds new entries by the time of the session's last activity.
    enter_at_end(DirectoryType.SESSION_RECORDED, record)

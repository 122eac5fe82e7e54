"""Links to a session as it was when it was shared: who may open one, and how long it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnesis_core.config import SharingConfig


class Audience(StrEnum):
    SITE = "site"  # those who are signed in, in the session's organisation
    PEOPLE = "people"  # some of these
    ANYONE = "anyone"  # who has the link


class ShareState(StrEnum):
    OPEN = "open"
    REVOKED = "revoked"
    EXPIRED = "expired"
    FORBIDDEN = "forbidden"  # by the site's configuration, as it is now


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRecord:
    id: str
    session_id: str
    message_id: str  # the last one that is shown, which says the branch too
    branch: int  # of that message
    last_seq: int  # of that message
    title: str  # the session's at that time
    audience: Audience
    people: tuple[str, ...]  # their pseudonyms
    added_seq: int
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def is_permitted(audience: Audience, config: SharingConfig) -> bool:
    return config.people_may_share and (config.with_anyone or audience is not Audience.ANYONE)


def state_of(share: ShareRecord, config: SharingConfig, *, at: datetime) -> ShareState:
    if share.revoked_at is not None:
        return ShareState.REVOKED
    if share.expires_at is not None and share.expires_at <= at:
        return ShareState.EXPIRED
    return ShareState.OPEN if is_permitted(share.audience, config) else ShareState.FORBIDDEN


def is_for(share: ShareRecord, ref: str, *, is_member: bool) -> bool:
    """Say whether a person may open a link, who is in the session's organisation or not."""
    if share.audience is Audience.ANYONE:
        return True
    return is_member and (share.audience is Audience.SITE or ref in share.people)

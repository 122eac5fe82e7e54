"""Whom a shared link is for, and whether it stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mnesis_core.config import SharingConfig
from mnesis_core.network.sharing import Audience, ShareRecord, ShareState, is_for, is_permitted, state_of

NOW = datetime(2026, 11, 28, tzinfo=UTC)


def share(**values: Any) -> ShareRecord:
    plain = {"id": "share_1", "session_id": "sess_1", "message_id": "msg_1", "branch": 0, "last_seq": 2, "title": ""}
    times = {"added_seq": 1, "created_at": NOW, "expires_at": None, "revoked_at": None}
    return ShareRecord(**{**plain, **times, "audience": Audience.SITE, "people": ()} | values)


@pytest.mark.parametrize(
    ("audience", "named", "others", "outside", "stranger"),
    [
        (Audience.SITE, True, True, False, False),
        (Audience.PEOPLE, True, False, False, False),
        (Audience.ANYONE, True, True, True, True),
    ],
)
def test_whom_it_is_for(audience: Audience, named: bool, others: bool, outside: bool, stranger: bool) -> None:
    link = share(audience=audience, people=("ada",))
    assert is_for(link, "ada", is_member=True) is named
    assert is_for(link, "bob", is_member=True) is others
    assert is_for(link, "ada", is_member=False) is outside
    assert is_for(link, "", is_member=False) is stranger


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, ShareState.OPEN),
        ({"expires_at": NOW + timedelta(microseconds=1)}, ShareState.OPEN),
        ({"expires_at": NOW}, ShareState.EXPIRED),
        ({"expires_at": NOW, "revoked_at": NOW}, ShareState.REVOKED),
        ({"audience": Audience.ANYONE}, ShareState.FORBIDDEN),
        ({"audience": Audience.ANYONE, "revoked_at": NOW}, ShareState.REVOKED),
    ],
)
def test_whether_it_stands(values: dict[str, Any], state: ShareState) -> None:
    assert state_of(share(**values), SharingConfig(), at=NOW) is state


def test_what_a_site_permits() -> None:
    def permitted(**values: bool) -> list[Audience]:
        return [audience for audience in Audience if is_permitted(audience, SharingConfig(**values))]

    assert permitted() == [Audience.SITE, Audience.PEOPLE]
    assert permitted(with_anyone=True) == list(Audience)
    assert permitted(people_may_share=False, with_anyone=True) == []

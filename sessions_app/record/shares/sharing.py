"""Shares: links that show other people a session as it was. ``open_share`` alone decides who sees anything of one.

A link holds the share's id and its signature with the site's secret key. So nothing that opens a share is stored or
exported, and its owner can still copy the link again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer
from django.db.models import Count, F, Max, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.actor import Actor, ActorKind
from mnesis_core.context.branches import LINE, Path
from mnesis_core.errors import (
    Conflict,
    InvalidRequest,
    MessageNotFoundError,
    NotSignedIn,
    SessionNotFoundError,
    SessionTemporary,
    SharedLinkNotFound,
    ShareNotFoundError,
    SharingNotPermitted,
)
from mnesis_core.network.sharing import Audience, ShareRecord, ShareState, is_for, is_permitted, state_of
from mnesis_core.records import SessionRecord, record_of
from mnesis_core.text import encode_text
from sessions_app.conf import site_config
from sessions_app.models import Message, Person, Share, ShareOpening
from sessions_app.ownership import owned_by
from sessions_app.record.actor import current_actor, identified_as
from sessions_app.record.branch_queries import path_in, rows_on
from sessions_app.record.change import change
from sessions_app.record.organisation_store import names_of
from sessions_app.record.session_queries import imported_since, load_session
from sessions_app.record.shares import share_store

LONGEST = timedelta(days=3_660)
MOST_PEOPLE = 100
MOST_READERS = 20  # who are named of one share
_SIGNER = Signer(sep=".", salt="mnesis.share")
# What was imported since counts for nothing: a file may say what it likes, and the people it means are of another site.
_SHARES: QuerySet[Any] = (
    Share.objects.filter(~imported_since("session_id", "added_seq"), session__deleted_at__isnull=True)
    .annotate(branch=F("message__branch"), last_seq=F("message__seq"), organisation=F("session__organisation"))
    .order_by("-id")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a link shows a reader."""

    session: SessionRecord
    share: ShareRecord
    token: str
    owner_name: str
    path: Path  # to the share's last message, and no further


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    name: str | None  # ``None`` for those who are not signed in
    last_opened_at: datetime
    days: int  # on which they opened it


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnShare:
    """A share as its owner sees it."""

    share: ShareRecord
    state: ShareState
    token: str
    people: tuple[str, ...]  # their names; an account that is gone is left out
    readers: tuple[Reader, ...]  # the newest ones
    reader_count: int  # of all of them


def share_session(
    session_id: str,
    *,
    owner_id: int,
    audience: Audience,
    people: Collection[str] = (),
    message_id: str | None = None,
    expires_at: datetime | None = None,
) -> OwnShare:
    """Share a session up to a message, by default the last one of the chosen branch.

    :param people: the names of the accounts that it is for, if that is the audience
    :raises SharingNotPermitted: the site does not let people share with this audience.
    :raises SessionNotFoundError: it does not exist or belongs to another person.
    :raises MessageNotFoundError: the session has no such message, or none at all.
    :raises SessionTemporary: it is a temporary chat.
    :raises Conflict: the turn of the message has not ended.
    :raises InvalidRequest: the people are missing or unknown, or the time is not in the next ten years.
    """
    if not is_permitted(audience, site_config().sharing):
        raise SharingNotPermitted()
    now = timezone.now()
    if expires_at is not None and not now < expires_at <= now + LONGEST:
        raise InvalidRequest(gettext_noop("expires_at must be a time in the next ten years"), field="expires_at")
    session = load_session(session_id, owner_id=owner_id)
    if session.is_temporary:
        raise SessionTemporary(session_id=session_id)
    with change(session_id, now=now) as record:
        share_id = share_store.create_share(
            record,
            _last_message(session, message_id),
            title=session.title,
            audience=audience,
            people=_refs_of(people, audience, record.organisation),
            expires_at=expires_at,
        )
    return load_share(session_id, share_id, owner_id=owner_id)


def _last_message(session: SessionRecord, message_id: str | None) -> str:
    rows = Message.objects.filter(session_id=session.id).select_related("turn")
    if message_id is None:
        path = path_in(session) or LINE
        row = next(iter(rows_on(rows, path.stretches, limit=1, newest=True)), None)
    else:
        row = rows.filter(id=encode_text(message_id)).first()
    if row is None:
        raise MessageNotFoundError(message_id=message_id or "")
    # What its messages hold could still change.
    if row.turn.ended_at is None:
        raise Conflict(
            gettext_noop("The turn of this message has not ended. Share an earlier one, or wait."), message_id=row.id
        )
    return str(row.id)


def _refs_of(names: Collection[str], audience: Audience, organisation: str) -> list[str]:
    """Return the pseudonyms of accounts in an organisation."""
    if bool(names) != (audience is Audience.PEOPLE):
        raise InvalidRequest(gettext_noop("name people if and only if the audience is people"), field="people")
    accounts = get_user_model().objects.filter(username__in=[encode_text(name) for name in names], is_active=True)
    ids = dict(accounts.values_list("username", "pk"))
    found = Person.objects.filter(user_id__in=ids.values(), organisation_id=organisation)
    refs = dict(found.values_list("user_id", "ref"))
    for name in names:
        if ids.get(name) not in refs:
            raise InvalidRequest(
                gettext_noop("There is no account %(name)s here."), {"name": repr(name)}, field="people"
            )
    return sorted(refs.values())


def revoke_share(session_id: str, share_id: str, *, owner_id: int) -> OwnShare:
    """:raises ShareNotFoundError: the session has no such share.
    :raises SessionNotFoundError: it does not exist or belongs to another person.
    """
    load_share(session_id, share_id, owner_id=owner_id)
    with change(session_id) as record:
        share_store.revoke_share(record, share_id)
    return load_share(session_id, share_id, owner_id=owner_id)


def load_share(session_id: str, share_id: str, *, owner_id: int) -> OwnShare:
    """:raises ShareNotFoundError: the session has no such share.
    :raises SessionNotFoundError: it does not exist or belongs to another person.
    """
    session = load_session(session_id, owner_id=owner_id)
    found = _own(_SHARES.filter(session_id=session.id, id=encode_text(share_id)))
    if not found:
        raise ShareNotFoundError(share_id=share_id)
    return found[0]


def list_shares(
    *, owner_id: int, session_id: str | None = None, before: str | None = None, limit: int = 50
) -> list[OwnShare]:
    """Return the shares of a person's sessions, or of one of them, newest first, before the share ``before``.

    :raises SessionNotFoundError: it does not exist or belongs to another person.
    """
    rows = _SHARES.filter(owned_by(owner_id, "session__"))
    if session_id is not None:
        rows = rows.filter(session_id=load_session(session_id, owner_id=owner_id).id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    return _own(rows[:limit])


def _own(rows: Iterable[Any]) -> list[OwnShare]:
    shares = [_share(row) for row in rows]
    if not shares:
        return []
    opened = ShareOpening.objects.filter(share_id__in=[share.id for share in shares]).values("share_id", "reader")
    readers: dict[str, list[Any]] = defaultdict(list)
    for row in opened.annotate(last=Max("opened_at"), days=Count("id")).order_by("-last"):
        readers[row["share_id"]].append(row)
    shown = [row["reader"] for found in readers.values() for row in found[:MOST_READERS]]
    names = names_of({*shown, *(ref for share in shares for ref in share.people)})
    config, now = site_config().sharing, timezone.now()
    return [
        OwnShare(
            share=share,
            state=state_of(share, config, at=now),
            token=_SIGNER.sign(share.id),
            people=tuple(sorted(names[ref] for ref in share.people if ref in names)),
            readers=tuple(
                Reader(
                    name=names.get(row["reader"], "a former account") if row["reader"] else None,
                    last_opened_at=row["last"],
                    days=row["days"],
                )
                for row in readers[share.id][:MOST_READERS]
            ),
            reader_count=len(readers[share.id]),
        )
        for share in shares
    ]


def _share(row: Any) -> ShareRecord:
    return record_of(ShareRecord, row, audience=Audience(row.audience), people=tuple(row.people))


def open_share(token: str, *, reader_id: int | None) -> Shared:
    """Return what a link shows to this reader, ``None`` for one who is not signed in, and record that it was opened.

    The owner may open it whatever the audience, which is not recorded.

    :raises SharedLinkNotFound: it shows them nothing, for whatever reason.
    :raises NotSignedIn: it stands, and is for people who are signed in.
    """
    try:
        row = _SHARES.get(id=_SIGNER.unsign(token))
        session = load_session(row.session_id)
    except (BadSignature, Share.DoesNotExist, SessionNotFoundError) as error:
        raise SharedLinkNotFound() from error
    share, now = _share(row), timezone.now()
    owner = get_user_model().objects.filter(pk=session.owner_id, is_active=True).first()
    if owner is None or not session.is_at_home or state_of(share, site_config().sharing, at=now) is not ShareState.OPEN:
        raise SharedLinkNotFound()
    if reader_id != session.owner_id:
        _admit(share, row.organisation, reader_id, now)
    path = path_in(session, share.branch) or LINE
    return Shared(
        session=session,
        share=share,
        token=token,
        owner_name=owner.get_username(),
        path=Path(tuple(path.within(1, share.last_seq))),
    )


def _admit(share: ShareRecord, organisation: str, reader_id: int | None, now: datetime) -> None:
    person = None if reader_id is None else Person.objects.filter(user_id=reader_id).first()
    ref = "" if person is None else person.ref
    is_member = person is not None and person.organisation_id == organisation
    if not is_for(share, ref, is_member=is_member):
        raise NotSignedIn() if reader_id is None else SharedLinkNotFound()
    day = now.astimezone(UTC).toordinal()
    if ShareOpening.objects.filter(share_id=share.id, reader=ref, day=day).exists():
        return
    with (
        identified_as(current_actor() if ref else Actor(kind=ActorKind.VISITOR)),
        change(share.session_id, now=now) as record,
    ):
        share_store.add_opening(record, share.id, reader=ref, day=day)

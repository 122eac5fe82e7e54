"""Reads of assistants. One condition says who may use them: every query asks ``may_use``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from mnesis_core.errors import AssistantNotFoundError
from mnesis_core.records import FORK, AssistantFileRecord, AssistantRecord, SessionRecord, record_of
from sessions_app.models import AssistantGrant, AssistantVersion, Person
from sessions_app.ownership import home_of_user

MOST_VERSIONS = 100  # that a page lists
PREFIX = "assistant/"
"""What the names of assistants begin with where models are named."""


def may_use(user_id: int) -> Q:
    """Return what limits versions to those of assistants that a person may use.

    They are not removed, belong to the person's organisation, and are the person's own, for everyone there, or shared
    with the person or one of the person's groups.
    """
    granted = AssistantGrant.objects.filter(Q(person__user_id=user_id) | Q(group__user=user_id)).values("assistant")
    used = Q(assistant__owner__user_id=user_id) | Q(assistant__for_everyone=True) | Q(assistant__in=granted)
    return used & Q(assistant__organisation=home_of_user(user_id), assistant__removed_at__isnull=True)


def load_assistant(assistant_id: str, *, user_id: int) -> AssistantRecord:
    """Return the newest version.

    :raises AssistantNotFoundError: there is no such assistant, or this person may not use it.
    """
    found = _read(_newest(user_id).filter(assistant_id=assistant_id), user_id=user_id)
    if not found:
        raise AssistantNotFoundError(assistant_id=assistant_id)
    return found[0]


def list_assistants(*, user_id: int, before: str | None = None, limit: int = 50) -> list[AssistantRecord]:
    """Return those that a person may use, each as its newest version, the newest first after the one whose id is ``before``."""
    rows = _newest(user_id)
    if before is not None:
        rows = rows.filter(assistant_id__lt=before)
    return _read(rows.order_by("-assistant_id")[:limit], user_id=user_id)


def list_versions(assistant: AssistantRecord, *, user_id: int) -> list[AssistantRecord]:
    """Return the versions of an assistant that a person may use, the newest first."""
    rows = AssistantVersion.objects.filter(may_use(user_id), assistant_id=assistant.id)
    return _read(rows.order_by("-number")[:MOST_VERSIONS], user_id=user_id)


def assistant_of(session: SessionRecord) -> AssistantRecord | None:
    """Return the version that a session began with, though it may be removed by now, or no longer be shared with its owner.

    A session that came from another site names one that is not here.
    """
    if not session.assistant_version_id:
        return None
    rows = AssistantVersion.objects.filter(
        pk=session.assistant_version_id, assistant__organisation=home_of_user(session.owner_id)
    )
    return next(iter(_read(rows, user_id=session.owner_id)), None)


def files_given_to(session: SessionRecord) -> tuple[AssistantFileRecord, ...]:
    """Return the files of the version that a session began with, whoever may use that now.

    A fork that begins with messages has what these brought.
    """
    if not session.assistant_version_id or (session.origin == FORK and session.message_seq):
        return ()
    rows = AssistantVersion.objects.filter(pk=session.assistant_version_id)
    return _files(next(iter(rows.values_list("files", flat=True)), ()))


def contents_of_assistants(user_id: int) -> dict[str, int]:
    """Return the size of each content of the files that a person's assistants have now."""
    rows = AssistantVersion.objects.filter(
        assistant__owner__user_id=user_id, assistant__removed_at__isnull=True, number=F("assistant__version")
    )
    found = rows.exclude(files=[]).values_list("files", flat=True)
    return {file.content_id: file.size for files in found for file in _files(files)}


def is_usable(assistant: AssistantRecord, *, user_id: int) -> bool:
    """Return whether a person may begin a session with an assistant now."""
    return _newest(user_id).filter(assistant_id=assistant.id).exists()


def groups_of(user_id: int) -> list[str]:
    """Return the names of the groups that a person is in, with which alone the person can share."""
    return list(Group.objects.filter(user=user_id).order_by("name").values_list("name", flat=True))


def _newest(user_id: int) -> QuerySet[AssistantVersion, Any]:
    return AssistantVersion.objects.filter(may_use(user_id), number=F("assistant__version"))


def _read(rows: QuerySet[AssistantVersion, Any], *, user_id: int) -> list[AssistantRecord]:
    names = get_user_model().objects.filter(pk=OuterRef("assistant__owner__user_id")).values("username")
    found: Iterable[Any] = list(
        rows.annotate(
            owner_name=Subquery(names[:1]),
            of_user_id=F("assistant__owner__user_id"),
            newest=F("assistant__version"),
            is_for_everyone=F("assistant__for_everyone"),
        )
    )
    own = {row.assistant_id for row in found if row.of_user_id == user_id}
    shared_with: defaultdict[str, list[tuple[str, bool]]] = defaultdict(list)
    if own:
        called = get_user_model().objects.filter(pk=OuterRef("person__user_id")).values("username")
        grants = AssistantGrant.objects.filter(assistant_id__in=list(own)).order_by("pk")
        named = grants.annotate(name=Subquery(called[:1]))
        for id, group, name in named.values_list("assistant_id", "group__name", "name"):
            shared_with[id].append((group or name or "", bool(group)))
    return [
        record_of(
            AssistantRecord,
            row,
            id=row.assistant_id,
            version_id=row.id,
            version=row.number,
            files=_files(row.files),
            owner_name=row.owner_name or "",
            is_owner=row.assistant_id in own,
            for_everyone=row.is_for_everyone,
            is_newest=row.number == row.newest,
            people=tuple(name for name, is_group in shared_with.get(row.assistant_id, ()) if not is_group),
            groups=tuple(name for name, is_group in shared_with.get(row.assistant_id, ()) if is_group),
        )
        for row in found
    ]


def _files(stored: Iterable[Mapping[str, Any]]) -> tuple[AssistantFileRecord, ...]:
    return tuple(AssistantFileRecord(**file) for file in stored)


def people_named(names: Iterable[str], *, user_id: int) -> dict[str, str]:
    """Return the pseudonyms of active accounts of a person's organisation, by username."""
    accounts = get_user_model().objects.filter(username__in=list(names), is_active=True)
    rows = Person.objects.filter(user_id__in=accounts.values("pk"), organisation=home_of_user(user_id))
    found = rows.values_list("user_id", "pk")
    by_id = dict(accounts.values_list("pk", "username"))
    return {by_id[user]: pk for user, pk in found if user in by_id}

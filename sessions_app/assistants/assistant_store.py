"""Assistants as they are read, and the only writer of them, their versions and those whom they are shared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import AssistantNotFoundError, AssistantNotYours, FileReferenceNotFoundError, InvalidRequest
from mnesis_core.records import FORK, AssistantFileRecord, AssistantRecord, SessionRecord, new_id, record_of
from mnesis_core.text import checked_name, encode_text
from sessions_app.conf import OF_ASSISTANT, check_defaults, get_spec
from sessions_app.models import Assistant, AssistantGrant, AssistantVersion, Person
from sessions_app.ownership import home_of_user
from sessions_app.record.organisation_store import home_of, ref_of

MOST_STARTERS, MOST_SHARED, MOST_FILES = 8, 100, 20
MOST_VERSIONS = 100  # that a page lists
PREFIX = "assistant/"
"""What the names of assistants begin with where models are named."""


def create_assistant(
    *,
    owner_id: int,
    name: str,
    for_everyone: bool = False,
    people: Sequence[str] = (),
    groups: Sequence[str] = (),
    added_files: Sequence[AssistantFileRecord] = (),
    **values: Any,
) -> AssistantRecord:
    """:param values: ``description``, ``instructions``, ``model``, ``config``, ``starters`` and ``picture``, the id
        of a content that is kept; all optional
    :param added_files: files whose contents are kept
    :raises InvalidRequest: the name is empty, a value is out of its bounds, or there is no such person or group.
    :raises ModelNotFoundError: there is no such model, or this person may not use it.
    """
    said = _checked(owner_id, {"name": name, **values})
    now, ref = timezone.now(), ref_of(owner_id)
    with transaction.atomic():
        assistant = Assistant.objects.create(
            id=new_id("asst"),
            owner_id=ref,
            organisation_id=home_of(owner_id),
            for_everyone=for_everyone,
            created_at=now,
        )
        _add_version(assistant.id, 1, owner_id, said, files=_with_files((), added=added_files))
        _share(assistant.id, owner_id, people=people, groups=groups)
    return load_assistant(assistant.id, user_id=owner_id)


def update_assistant(
    assistant_id: str,
    *,
    owner_id: int,
    for_everyone: bool | None = None,
    people: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    added_files: Sequence[AssistantFileRecord] = (),
    removed_files: Sequence[str] = (),
    **values: Any,
) -> AssistantRecord:
    """Change what is not ``None``. Other values than those of whom it is for make a new version, for new sessions only.

    :param added_files: files whose contents are kept; each takes the place of one at the same path
    :param removed_files: the ids of files that the new version does not have
    :raises FileReferenceNotFoundError: it has no such file.
    :raises AssistantNotFoundError: there is no such assistant, or this person may not use it.
    :raises AssistantNotYours: this person is not its owner.
    :raises InvalidRequest, ModelNotFoundError: as ``create_assistant``
    """
    with transaction.atomic():
        load_own_assistant(assistant_id, owner_id=owner_id)
        # The assistant's row first, so that of two who change it at once the second sees what the first has made.
        Assistant.objects.filter(pk=assistant_id).update(version=F("version"))
        before = load_own_assistant(assistant_id, owner_id=owner_id)
        kept = {name: getattr(before, name) for name in _CONTENT}
        said = kept | {name: value for name, value in values.items() if value is not None}
        files = _with_files(before.files, added=added_files, removed=removed_files)
        if said != kept or files != before.files:
            _add_version(assistant_id, before.version + 1, owner_id, _checked(owner_id, said), files=files)
            Assistant.objects.filter(pk=assistant_id).update(version=before.version + 1)
        if for_everyone is not None:
            Assistant.objects.filter(pk=assistant_id).update(for_everyone=for_everyone)
        _share(assistant_id, owner_id, people=people, groups=groups)
    return load_assistant(assistant_id, user_id=owner_id)


def remove_assistant(assistant_id: str, *, owner_id: int) -> None:
    """Offer an assistant no more. Its versions stay, and its sessions keep what they had.

    :raises AssistantNotFoundError: there is no such assistant, or this person may not use it.
    :raises AssistantNotYours: this person is not its owner.
    """
    load_own_assistant(assistant_id, owner_id=owner_id)
    Assistant.objects.filter(pk=assistant_id, removed_at=None).update(removed_at=timezone.now())


def load_own_assistant(assistant_id: str, *, owner_id: int) -> AssistantRecord:
    """:raises AssistantNotFoundError: there is no such assistant, or this person may not use it.
    :raises AssistantNotYours: this person is not its owner.
    """
    assistant = load_assistant(assistant_id, user_id=owner_id)
    if not assistant.is_owner:
        raise AssistantNotYours(assistant_id=assistant_id)
    return assistant


_CONTENT = ("name", "description", "instructions", "model", "config", "starters", "picture")


def _with_files(
    files: Sequence[AssistantFileRecord], *, added: Sequence[AssistantFileRecord], removed: Sequence[str] = ()
) -> tuple[AssistantFileRecord, ...]:
    if missing := set(removed) - {file.id for file in files}:
        raise FileReferenceNotFoundError(file_id=min(missing))
    by_path = {file.path: file for file in files if file.id not in removed}
    for file in added:
        there = by_path.get(file.path)
        if there is None or there.content_id != file.content_id:
            by_path[file.path] = file
    if len(by_path) > MOST_FILES:
        raise InvalidRequest(gettext_noop("An assistant may have %(most)s files."), {"most": MOST_FILES}, field="file")
    return tuple(by_path.values())


def _add_version(
    assistant_id: str, number: int, owner_id: int, said: Mapping[str, Any], *, files: Sequence[AssistantFileRecord]
) -> None:
    AssistantVersion.objects.create(
        id=new_id("assv"),
        assistant_id=assistant_id,
        number=number,
        created_by_id=ref_of(owner_id),
        created_at=timezone.now(),
        files=[asdict(file) for file in files],
        **said,
    )


def _share(assistant_id: str, owner_id: int, *, people: Sequence[str] | None, groups: Sequence[str] | None) -> None:
    grants = AssistantGrant.objects.filter(assistant_id=assistant_id)
    if people is not None:
        named = [*dict.fromkeys(encode_text(name) for name in people)]
        found = people_named(named, user_id=owner_id)
        _check_found("people", named, found, gettext_noop("There is no account %(name)s here."))
        grants.filter(group__isnull=True).delete()
        AssistantGrant.objects.bulk_create(
            AssistantGrant(assistant_id=assistant_id, person_id=found[name]) for name in named
        )
    if groups is not None:
        named = [*dict.fromkeys(encode_text(name) for name in groups)]
        own = dict(Group.objects.filter(user=owner_id, name__in=named).values_list("name", "pk"))
        _check_found("groups", named, own, gettext_noop("You are in no group %(name)s."))
        grants.filter(person__isnull=True).delete()
        AssistantGrant.objects.bulk_create(
            AssistantGrant(assistant_id=assistant_id, group_id=own[name]) for name in named
        )


def _check_found(field: str, named: Sequence[str], found: Mapping[str, Any], missing: str) -> None:
    if len(named) > MOST_SHARED:
        told = {
            "people": gettext_noop("An assistant may be shared with %(most)s people."),
            "groups": gettext_noop("An assistant may be shared with %(most)s groups."),
        }
        raise InvalidRequest(told[field], {"most": MOST_SHARED}, field=field)
    for name in named:
        if name not in found:
            raise InvalidRequest(missing, {"name": repr(name)}, field=field)


def _checked(owner_id: int, said: dict[str, Any]) -> dict[str, Any]:
    check_defaults(said.get("config", {}), refused=OF_ASSISTANT)
    if len(said.get("instructions", "")) > LONGEST_INSTRUCTIONS:
        raise InvalidRequest(
            gettext_noop("instructions may have %(most)s characters"),
            {"most": LONGEST_INSTRUCTIONS},
            field="instructions",
        )
    if len(said.get("starters", ())) > MOST_STARTERS:
        raise InvalidRequest(
            gettext_noop("An assistant may have %(most)s questions to begin with."),
            {"most": MOST_STARTERS},
            field="starters",
        )
    if said.get("model"):
        get_spec(said["model"], user_id=owner_id)
    return said | {"name": checked_name(said["name"], missing=gettext_noop("Give the assistant a name."))}


# Reads of assistants. One condition says who may use them: every query asks ``may_use``.


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

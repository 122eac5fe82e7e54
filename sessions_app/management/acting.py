"""The bases of commands: what is checked first; of those that write the record, who acts at the host, and for whom."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand

from mnesis_core.actor import Actor, ActorKind, Via
from mnesis_core.errors import InvalidRequest
from mnesis_core.records import new_request_id
from sessions_app.database.guards.checks import SITE
from sessions_app.record.actor import serving
from sessions_app.record.organisation_store import ref_of


class SiteCommand(BaseCommand):
    # Those of Mnesis. Django's, about addresses and the admin, find mistakes in code and take as long as most commands do.
    requires_system_checks = [SITE]


class RecordCommand(SiteCommand):
    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def execute(self, *args: Any, **options: Any) -> str | None:
        def who() -> Actor:
            if "user" not in options:  # it is about what it names, whosever that is
                return Actor(kind=ActorKind.COMMAND, ref=self.name)
            return self.actor_for(find_user(options["user"]))

        with serving(via=Via.COMMAND, request=new_request_id(), who=who):
            return super().execute(*args, **options)

    def actor_for(self, user: User) -> Actor:
        return Actor(kind=ActorKind.COMMAND, ref=self.name, for_ref=ref_of(user.pk))


def find_user(username: str | None) -> User:
    """Return the user of this name, or the first administrator.

    :raises InvalidRequest: there is no such user.
    """
    users = get_user_model().objects.filter(is_active=True)
    if username:
        user = users.filter(username=username).first()
    else:
        user = users.filter(is_superuser=True).order_by("pk").first()
    if user is None:
        known = f"there is no user {username!r}" if username else "there is no administrator yet"
        raise InvalidRequest(f"{known}; make one with 'manage.py createsuperuser', or name one with --user")
    return user

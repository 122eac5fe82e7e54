"""Passwords are tried only so often, wherever they are asked for: signing in, also to the administration, and changing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.http import HttpRequest

from mnesis_core.client_addresses import client_address, network_of
from mnesis_core.errors import TooManyAttempts
from mnesis_core.rate_limits import Bucket, password_change_buckets, sign_in_buckets
from mnesis_site.devices import known_device
from mnesis_site.hashing import KNOWN, STRANGERS, Lane, place
from sessions_app.conf import site_config
from sessions_app.store.tries import count_try, seconds_to_wait, take_back_try

T = TypeVar("T")


class LimitedBackend(ModelBackend):
    """Django's backend, which checks a password only as often as ``sign_in_buckets`` permit."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Who this is, if the password is right.

        :raises TooManyAttempts: too many were wrong.
        :raises PasswordsBusy: too many wait to be looked at.
        """

        def check() -> User | None:
            return super(LimitedBackend, self).authenticate(request, username, password, **kwargs)

        if request is None or username is None or password is None:  # nobody asks over the network
            return check()
        device = known_device(request, username)
        buckets = sign_in_buckets(
            site_config().sign_in, account=username, network=network_of(address_of(request)), device=device
        )
        return limited(buckets, check, lane=KNOWN if device else STRANGERS)


class LimitedPasswordChangeForm(PasswordChangeForm):
    """Django's own, for which nobody can try out what the old password may be."""

    def clean_old_password(self) -> str:
        """:raises TooManyAttempts: too many were wrong."""
        buckets = password_change_buckets(site_config().sign_in, account=self.user.get_username())
        return limited(buckets, super().clean_old_password, lane=KNOWN)


def address_of(request: HttpRequest) -> str:
    """Where a request comes from; behind proxies that ``MNESIS_TRUSTED_PROXIES`` names, what they say."""
    peer = request.META.get("REMOTE_ADDR") or ""
    return client_address(peer, request.headers.get("X-Forwarded-For", ""), settings.TRUSTED_PROXIES)


def limited(buckets: Sequence[Bucket], check: Callable[[], T], *, lane: Lane) -> T:
    """What ``check`` finds out about a password, if one more try is allowed. What it finds is right, what is empty wrong.

    :raises TooManyAttempts: it is not.
    :raises PasswordsBusy: too many passwords wait to be hashed.
    """
    _refuse(seconds_to_wait(buckets))  # a flood takes no place from anybody, and writes nothing
    with place(lane):
        # Before, not after: of many at once only so many are looked at.
        _refuse(count_try(buckets))
        found = check()
    if found:
        take_back_try(buckets)
    return found


def too_many(seconds: int) -> TooManyAttempts:
    """The refusal of a try that is allowed after so many seconds."""
    wait = f"{seconds} second{'s' * (seconds > 1)}" if seconds < 120 else f"{-(-seconds // 60)} minutes"
    return TooManyAttempts(f"Too many wrong passwords. Try again in {wait}.", retry_after=seconds)


def _refuse(seconds: int) -> None:
    if seconds:
        raise too_many(seconds)

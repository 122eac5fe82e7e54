"""Changes to models and to API keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from mnesis_core.errors import InvalidRequest, ModelNotFoundError, NotFound
from mnesis_core.llm.interface import ModelSpec, Prices
from mnesis_core.network.rate_limits import SCOPES, KeyText, new_key
from sessions_app.conf import check_listed
from sessions_app.models import ApiKey, LanguageModel, ModelGrant


def price_columns(prices: Prices) -> dict[str, int | None]:
    return {f"{name}_micros_per_million": price for name, price in asdict(prices).items()}


def put_model(spec: ModelSpec, *, api_key_env: str = "") -> None:
    """Add a model, or replace the one with this alias. Who may use it is kept; its last check is not."""
    LanguageModel.objects.update_or_create(
        alias=spec.alias,
        defaults={
            "litellm_model": spec.litellm_model,
            "api_base": spec.api_base,
            "api_key_env": api_key_env,
            "context_window": spec.context_window,
            "context_window_source": spec.context_window_source,
            "max_output_tokens": spec.max_output_tokens,
            "max_output_source": spec.max_output_source,
            "prices_source": spec.prices_source,
            **price_columns(spec.prices),
            "timeout_seconds": spec.timeout_seconds,
            "total_timeout_seconds": spec.total_timeout_seconds,
            "fallbacks": list(spec.fallbacks),
            "entered_on_host": spec.entered_on_host,
            "shared_ratio": spec.shared_ratio,
            "last_check": {},
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who may use a restricted model or tool server. If empty, only superusers may."""

    groups: Sequence[Group] = ()
    users: Sequence[User] = ()

    @property
    def members(self) -> list[dict[str, Any]]:
        """Return each group and user as the columns of a grant."""
        return [{"group": group} for group in self.groups] + [{"user": user} for user in self.users]


def check_entered(alias: str, **reached: str) -> bool:
    """Check the addresses and variables that a page enters; return whether they are those that a host command entered.

    :param reached: ``litellm_model``, ``api_base`` and ``api_key_env``
    :raises NotListed: they are not, and the host's lists do not hold them; ``field`` says which.
    """
    if LanguageModel.objects.filter(alias=alias, entered_on_host=True, **reached).exists():
        return True
    check_listed(**reached)
    return False


def enter_model(spec: ModelSpec, *, api_key_env: str, audience: Audience | None) -> None:
    """Add or replace a model and who may use it (``None``: everybody) in one transaction.

    A restricted model is never open to everybody in between. If how it is reached is unchanged, it stays as the host
    entered it; otherwise the host's lists must hold it.

    :raises NotListed: they do not; ``field`` says what.
    """
    with transaction.atomic():
        LanguageModel.objects.select_for_update().filter(alias=spec.alias).first()
        reached = {"litellm_model": spec.litellm_model, "api_base": spec.api_base, "api_key_env": api_key_env}
        stays = check_entered(spec.alias, **reached)
        put_model(replace(spec, entered_on_host=stays), api_key_env=api_key_env)
        if audience is None:
            allow_model_to_all(spec.alias)
        else:
            allow_model(spec.alias, audience)


def allow_model(alias: str, audience: Audience) -> None:
    """Restrict a model to these groups and people.

    :raises ModelNotFoundError: no added model has this name.
    """
    grants = [ModelGrant(model_id=alias, **member) for member in audience.members]
    with transaction.atomic():
        _change(alias, is_restricted=True)
        ModelGrant.objects.filter(model_id=alias).delete()
        ModelGrant.objects.bulk_create(grants)


def allow_model_to_all(alias: str) -> None:
    """:raises ModelNotFoundError: no added model has this name."""
    with transaction.atomic():
        _change(alias, is_restricted=False)
        ModelGrant.objects.filter(model_id=alias).delete()


def remove_model(alias: str) -> None:
    """Remove a model. Its sessions keep everything, but cannot continue until a model of this name exists.

    :raises ModelNotFoundError: no added model has this name.
    """
    if not LanguageModel.objects.filter(alias=alias).delete()[0]:
        raise _unknown(alias)


def keep_check(alias: str, result: dict[str, Any]) -> None:
    """Keep the result of a check. The shipped model has no row, so nothing is kept for it."""
    LanguageModel.objects.filter(alias=alias).update(last_check=result)


def _change(alias: str, **columns: Any) -> None:
    if not LanguageModel.objects.filter(alias=alias).update(**columns):
        raise _unknown(alias)


def _unknown(alias: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"no model that was added is called {alias!r}", model=alias)


def share_ratio(alias: str, ratio: float) -> None:
    """Keep the token ratio that new sessions of a model start with."""
    LanguageModel.objects.filter(alias=alias).update(shared_ratio=ratio)


# Changes to API keys.

# Writing last_used_at on each request would make every read a write.
TOUCH_EVERY = timedelta(minutes=1)


def create_key(*, owner_id: int, scope: str = "all") -> KeyText:
    """Make a key. Its text is returned only here and is not kept.

    :raises InvalidRequest: there is no such scope.
    """
    if scope not in SCOPES:
        raise InvalidRequest(f"A key's scope is {' or '.join(SCOPES)}, not {scope!r}", field="scope")
    key = new_key()
    ApiKey.objects.create(prefix=key.prefix, owner_id=owner_id, secret_hash=key.secret_hash, scope=scope)
    return key


def revoke_key(prefix: str) -> None:
    """Revoke a key from the next request on. Revoking it again does nothing.

    :raises NotFound: no key has this prefix.
    """
    found = ApiKey.objects.filter(prefix=prefix)
    if not found.filter(revoked_at__isnull=True).update(revoked_at=timezone.now()) and not found.exists():
        raise NotFound("No key has this prefix. 'manage.py apikey list' shows the ones there are.", prefix=prefix)


def touch_key(prefix: str) -> None:
    """Note that a key was used, at most once a minute."""
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - TOUCH_EVERY)
    ApiKey.objects.filter(stale, prefix=prefix).update(last_used_at=now)

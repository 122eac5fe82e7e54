"""Changes to the list of models."""

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
from mnesis_core.network.keys import SCOPES, KeyText, new_key
from sessions_app.conf import check_listed
from sessions_app.models import ApiKey, LanguageModel, ModelGrant


def price_columns(prices: Prices) -> dict[str, int | None]:
    """Prices as the columns of a model's row."""
    return {f"{name}_micros_per_million": price for name, price in asdict(prices).items()}


def put_model(spec: ModelSpec, *, api_key_env: str = "") -> None:
    """Add a model, or replace the one with this alias. Who may use it stays; how it once answered does not."""
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
    """Who may use what is restricted, a model or a server of tools; nobody in it: the administrators who may everything."""

    groups: Sequence[Group] = ()
    users: Sequence[User] = ()

    @property
    def members(self) -> list[dict[str, Any]]:
        """Each group and each person, as the columns of a grant."""
        return [{"group": group} for group in self.groups] + [{"user": user} for user in self.users]


def check_entered(alias: str, **reached: str) -> bool:
    """Look at how a model is reached as a page enters it. Whether that stays as a command on the host entered it.

    :param reached: ``litellm_model``, ``api_base`` and ``api_key_env``
    :raises NotListed: it does not, and the host's lists do not hold it; ``field`` says what.
    """
    if LanguageModel.objects.filter(alias=alias, entered_on_host=True, **reached).exists():
        return True
    check_listed(**reached)
    return False


def enter_model(spec: ModelSpec, *, api_key_env: str, audience: Audience | None) -> None:
    """Add a model at a page, or replace the one with this alias, with who may use it (``None``: everybody), in one
    step: at no moment is a restricted one there for all.

    How it is reached stays the host's where nothing of that is changed; anything else the host's lists must hold.

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
    """Let only these groups and people use a model.

    :raises ModelNotFoundError: no model that was added has this name.
    """
    grants = [ModelGrant(model_id=alias, **member) for member in audience.members]
    with transaction.atomic():
        _change(alias, is_restricted=True)
        ModelGrant.objects.filter(model_id=alias).delete()
        ModelGrant.objects.bulk_create(grants)


def allow_model_to_all(alias: str) -> None:
    """Let everybody use a model.

    :raises ModelNotFoundError: no model that was added has this name.
    """
    with transaction.atomic():
        _change(alias, is_restricted=False)
        ModelGrant.objects.filter(model_id=alias).delete()


def remove_model(alias: str) -> None:
    """Take a model away. Sessions that have it keep everything, and cannot go on before there is one of its name.

    :raises ModelNotFoundError: no model that was added has this name.
    """
    if not LanguageModel.objects.filter(alias=alias).delete()[0]:
        raise _unknown(alias)


def keep_check(alias: str, result: dict[str, Any]) -> None:
    """Keep how a model answered when it was last asked one word; of the shipped one, which has no row, nothing."""
    LanguageModel.objects.filter(alias=alias).update(last_check=result)


def _change(alias: str, **columns: Any) -> None:
    if not LanguageModel.objects.filter(alias=alias).update(**columns):
        raise _unknown(alias)


def _unknown(alias: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"no model that was added is called {alias!r}", model=alias)


def share_ratio(alias: str, ratio: float) -> None:
    """Keep what new sessions of a model begin to count with."""
    LanguageModel.objects.filter(alias=alias).update(shared_ratio=ratio)


# Changes to API keys.

TOUCH_EVERY = timedelta(minutes=1)
"""How exact ``last_used_at`` is. Writing it on each request would make every read a write."""


def create_key(*, owner_id: int, scope: str = "all") -> KeyText:
    """Make a key. Its text is returned this once and not kept.

    :raises InvalidRequest: there is no such scope.
    """
    if scope not in SCOPES:
        raise InvalidRequest(f"A key's scope is {' or '.join(SCOPES)}, not {scope!r}", field="scope")
    key = new_key()
    ApiKey.objects.create(prefix=key.prefix, owner_id=owner_id, secret_hash=key.secret_hash, scope=scope)
    return key


def revoke_key(prefix: str) -> None:
    """End a key, from the next request on. Once more does nothing.

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

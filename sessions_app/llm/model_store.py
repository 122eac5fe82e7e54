"""The only writer of the models of a site, of who may use them, and of API keys."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.errors import InvalidRequest, MnesisError, ModelNotFoundError, NotFound
from mnesis_core.llm.caching import LIFETIMES
from mnesis_core.llm.interface import (
    LimitSource,
    ModelSpec,
    Prices,
    Request,
    StatedLimits,
    complete,
    settle_limits,
)
from mnesis_core.llm.parameters import KEPT_NAMES, Parameters, read_parameters
from mnesis_core.network.rate_limits import MODES, SCOPES, KeyRecord, KeyText, new_key
from mnesis_core.providers.credentials import KeyState, reseal, seal, unseal
from mnesis_core.providers.litellm_ import stated_capabilities, stated_limits
from mnesis_core.providers.litellm_parameters import settle_parameters
from mnesis_core.records import record_of
from mnesis_core.text import encode_text, excerpt
from sessions_app.conf import DEMO, check_listed, get_model, site_secrets, spec_of
from sessions_app.database.tables import CompiledQuery, Param
from sessions_app.database.threads import waiting_for
from sessions_app.models import ApiKey, LanguageModel, ModelGrant
from sessions_app.ownership import HOME_OF_OWNER
from sessions_app.record.organisation_store import home_of

MICROS = 1_000_000
LARGEST_PRICE = 1_000_000
LONGEST_SECONDS = 86_400
MOST_TOKENS = 10_000_000
CHECK_QUESTION = "Answer with one word: ready?"
CHECK_SECONDS = 60.0  # the longest time of a check, unless the model's entry sets a shorter one
LONGEST_ANSWER, LONGEST_PROBLEM = 200, 1_000
# Writing last_used_at on each request would make every read a write.
TOUCH_EVERY = timedelta(minutes=1)
MOST_KEYS = 100  # of one person, without those that are revoked


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    spec: ModelSpec
    api_key_env: str = ""
    sealed_key: str = field(default="", repr=False)  # one that was entered on a page
    is_restricted: bool = False
    groups: tuple[str, ...] = ()  # names of groups that may use a restricted model
    users: tuple[str, ...] = ()
    last_check: dict[str, Any]
    is_shipped: bool = False  # whether it exists without having been entered


@dataclass(frozen=True, slots=True)
class StoredKey:
    alias: str
    litellm_model: str
    state: KeyState


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredPrices:
    """Prices of a million tokens in currency units; ``None`` if not stated."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def in_micros(self) -> Prices | None:
        """:raises InvalidRequest: a price is out of its bounds or goes with one that is not stated; ``field`` says which."""
        prices = asdict(self)
        if all(price is None for price in prices.values()):
            return None
        for name in ("input", "output"):
            if prices[name] is None:
                raise InvalidRequest(gettext_noop("the prices of prompt and answer go together"), field=f"{name}_price")
        for name, price in prices.items():
            if price is not None and not 0 <= price <= LARGEST_PRICE:
                raise InvalidRequest(
                    gettext_noop("a price must lie between 0 and %(most)s"),
                    {"most": LARGEST_PRICE},
                    field=f"{name}_price",
                )
        micros: dict[str, Any] = {
            name: None if price is None else round(price * MICROS) for name, price in prices.items()
        }
        return Prices(**micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who may use a restricted model or tool server. If empty, only superusers may."""

    groups: Sequence[Group] = ()
    users: Sequence[User] = ()

    @property
    def members(self) -> list[dict[str, Any]]:
        return [{"group": group} for group in self.groups] + [{"user": user} for user in self.users]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    at: str
    milliseconds: int
    answer: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    usage_source: str
    capabilities: tuple[str, ...] = ()  # from litellm's table, in words
    code: str = ""  # the error's code; empty if the model answered
    problem: str = ""

    @property
    def is_good(self) -> bool:
        return not self.code


SHIPPED = ModelEntry(spec=DEMO, last_check={}, is_shipped=True)


def list_model_entries() -> list[ModelEntry]:
    """Return every model, the shipped demo first, in three queries."""
    rows = LanguageModel.objects.order_by("alias").prefetch_related("grants__group", "grants__user")
    entries = [_entry(row) for row in rows]
    return entries if any(entry.spec.alias == DEMO.alias for entry in entries) else [SHIPPED, *entries]


def find_model_entry(alias: str) -> ModelEntry | None:
    row = LanguageModel.objects.filter(alias=alias).first()
    if row is not None:
        return _entry(row)
    return SHIPPED if alias == DEMO.alias else None


def find_users(names: Iterable[str]) -> list[User]:
    """Return the accounts with these names; unknown names are left out."""
    return list(User.objects.filter(username__in=[encode_text(name) for name in names]))


def _entry(row: LanguageModel) -> ModelEntry:
    grants = list(row.grants.all())
    return ModelEntry(
        spec=spec_of(row),
        api_key_env=row.api_key_env,
        sealed_key=row.sealed_key,
        is_restricted=row.is_restricted,
        groups=tuple(sorted(grant.group.name for grant in grants if grant.group is not None)),
        users=tuple(sorted(grant.user.get_username() for grant in grants if grant.user is not None)),
        last_check=row.last_check,
    )


def settle_model(
    *,
    alias: str,
    litellm_model: str,
    api_base: str,
    context_window: int | None,
    max_output_tokens: int | None,
    takes_pictures: bool | None,
    takes_documents: bool | None = None,
    takes_audio: bool | None = None,
    through_gateway: bool = False,
    prices: EnteredPrices,
    timeout_seconds: float,
    total_timeout_seconds: float,
    fallbacks: Iterable[str],
    parameters: Mapping[str, Any] | None = None,
    cache: str = LIFETIMES[1],
) -> ModelSpec:
    """Return a model as entered; what was left out comes from litellm's table, or else from a default.

    :raises InvalidRequest: a value is out of its bounds, or the model does not take a parameter; ``field`` says which.
    """
    asked = read_parameters(parameters or {}, allowed=KEPT_NAMES)
    limits = {"context_window": context_window, "max_output_tokens": max_output_tokens}
    waits: dict[str, Any] = {"timeout_seconds": timeout_seconds, "total_timeout_seconds": total_timeout_seconds}
    _check_bounds(limits, waits, cache)
    given = StatedLimits(source=LimitSource.CONFIGURED, prices=prices.in_micros(), **limits)
    spec = ModelSpec(
        alias=alias,
        litellm_model=litellm_model,
        api_base=api_base,
        parameters=asked,
        takes_pictures=takes_pictures,
        takes_documents=takes_documents,
        takes_audio=takes_audio,
        through_gateway=through_gateway,
        fallbacks=tuple(dict.fromkeys(fallbacks)),
        cache=cache,
        **waits,
        # A server with an address of its own is in no price list, and reading the list takes seconds.
        **settle_limits(given, None if api_base else stated_limits(litellm_model)),
    )
    _check_taken(spec)
    return spec


def _check_bounds(limits: Mapping[str, int | None], waits: Mapping[str, float], cache: str) -> None:
    bounds = [(name, tokens, 1, MOST_TOKENS) for name, tokens in limits.items() if tokens is not None]
    for name, value, least, most in (*bounds, *((name, wait, 0, LONGEST_SECONDS) for name, wait in waits.items())):
        if not 0 < value <= most:
            raise InvalidRequest(
                gettext_noop("%(name)s must lie between %(least)s and %(most)s"),
                {"name": name, "least": least, "most": most},
                field=name,
            )
    if cache not in LIFETIMES:
        raise InvalidRequest(
            gettext_noop("%(name)s must be one of %(names)s"),
            {"name": "cache", "names": ", ".join(LIFETIMES)},
            field="cache",
        )


def _check_taken(spec: ModelSpec) -> None:
    """:raises InvalidRequest: the model does not take a parameter that it would be sent with every call."""
    asked = spec.parameters
    ran = Parameters(provider_tools=asked.provider_tools)  # Permitted also where it is not taken beside other tools.
    others = settle_parameters(spec, replace(asked, provider_tools=None), has_tools=True)
    for name, why in (others.not_taken | settle_parameters(spec, ran, has_tools=False).not_taken).items():
        raise InvalidRequest(
            gettext_noop("%(name)s cannot be asked of this model: %(reason)s"),
            {"name": name, "reason": why},
            field="parameters",
        )


def put_model(spec: ModelSpec, *, api_key_env: str = "", sealed_key: str = "") -> None:
    """Add a model, or replace the one with this alias. Who may use it is kept; its last check is not."""
    LanguageModel.objects.update_or_create(
        alias=spec.alias,
        defaults={
            "litellm_model": spec.litellm_model,
            "api_base": spec.api_base,
            "api_key_env": api_key_env,
            "sealed_key": sealed_key,
            "context_window": spec.context_window,
            "context_window_source": spec.context_window_source,
            "max_output_tokens": spec.max_output_tokens,
            "max_output_source": spec.max_output_source,
            "takes_pictures": spec.takes_pictures,
            "takes_documents": spec.takes_documents,
            "takes_audio": spec.takes_audio,
            "through_gateway": spec.through_gateway,
            "prices_source": spec.prices_source,
            **{f"{name}_micros_per_million": price for name, price in asdict(spec.prices).items()},
            "timeout_seconds": spec.timeout_seconds,
            "total_timeout_seconds": spec.total_timeout_seconds,
            "fallbacks": list(spec.fallbacks),
            "parameters": spec.parameters.to_store(),
            "cache": spec.cache,
            "entered_on_host": spec.entered_on_host,
            "shared_ratio": spec.shared_ratio,
            "last_check": {},
        },
    )


def check_entered(alias: str, **reached: str) -> bool:
    """Check the addresses and variables that a page enters; return whether they are those that a host command entered.

    :param reached: ``litellm_model``, ``api_base`` and ``api_key_env``
    :raises NotListed: they are not, and the host's lists do not hold them; ``field`` says which.
    """
    if LanguageModel.objects.filter(alias=alias, entered_on_host=True, **reached).exists():
        return True
    check_listed(**reached)
    return False


def keeps_key(entry: ModelEntry, spec: ModelSpec) -> bool:
    """Return whether the key that is stored with a model, if there is one, can go where the changed model is reached."""
    return not entry.sealed_key or unseal(entry.sealed_key, **_place(spec)) is not None


def _place(model: ModelSpec | LanguageModel) -> dict[str, Any]:
    return {"litellm_model": model.litellm_model, "api_base": model.api_base, "secrets": site_secrets()}


def list_stored_keys() -> list[StoredKey]:
    """Return which models have a stored key, by name."""
    return [StoredKey(row.alias, row.litellm_model, _resealed(row)[1]) for row in _with_key()]


def reencrypt_keys() -> list[StoredKey]:
    """Seal the stored keys of all models with the site's current secret; return them as they were before.

    The rows are locked, so a key that is entered meanwhile is not overwritten.
    """
    with transaction.atomic():
        found = [(row, *_resealed(row)) for row in _with_key().select_for_update()]
        for row, sealed, state in found:
            if state is KeyState.EARLIER:
                LanguageModel.objects.filter(alias=row.alias).update(sealed_key=sealed)
    return [StoredKey(row.alias, row.litellm_model, state) for row, _, state in found]


def _with_key() -> QuerySet[LanguageModel]:
    return LanguageModel.objects.exclude(sealed_key="").order_by("alias")


def _resealed(row: LanguageModel) -> tuple[str, KeyState]:
    return reseal(row.sealed_key, **_place(row))


def enter_model(spec: ModelSpec, *, api_key_env: str, key: str | None = None, audience: Audience | None) -> None:
    """Add or replace a model and who may use it (``None``: everyone) in one transaction.

    A restricted model is never open to everyone in between. If how it is reached is unchanged, it stays as the host
    entered it; otherwise the host's lists must hold it.

    :param key: the provider's key, which is stored sealed; ``None`` keeps the one that is stored, empty removes it
    :raises NotListed: the host's lists do not hold it; ``field`` says what.
    """
    with transaction.atomic():
        row = LanguageModel.objects.select_for_update().filter(alias=spec.alias).first()
        sealed = seal(key, **_place(spec)) if key else row.sealed_key if row is not None and key is None else ""
        reached = {"litellm_model": spec.litellm_model, "api_base": spec.api_base, "api_key_env": api_key_env}
        stays = check_entered(spec.alias, **reached)
        put_model(replace(spec, entered_on_host=stays), api_key_env=api_key_env, sealed_key=sealed)
        allow_model(spec.alias, audience)


def allow_model(alias: str, audience: Audience | None) -> None:
    """Restrict a model to these groups and people; ``None`` opens it to everybody.

    :raises ModelNotFoundError: no added model has this name.
    """
    members = [] if audience is None else audience.members
    with transaction.atomic():
        if not LanguageModel.objects.filter(alias=alias).update(is_restricted=audience is not None):
            raise _unknown(alias)
        ModelGrant.objects.filter(model_id=alias).delete()
        ModelGrant.objects.bulk_create([ModelGrant(model_id=alias, **member) for member in members])


def remove_model(alias: str) -> None:
    """Remove a model. Its sessions keep everything, but cannot continue until a model of this name exists.

    :raises ModelNotFoundError: no added model has this name.
    """
    if not LanguageModel.objects.filter(alias=alias).delete()[0]:
        raise _unknown(alias)


def _unknown(alias: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        gettext_noop("no model that was added is called %(alias)s"), {"alias": repr(alias)}, model=alias
    )


def share_ratio(alias: str, ratio: float) -> None:
    """Keep the token ratio that new sessions of a model start with."""
    LanguageModel.objects.filter(alias=alias).update(shared_ratio=ratio)


def check_model(alias: str) -> tuple[ModelCheck, MnesisError | None]:
    """Ask a model one word, keep the result with the model, and return it with the error of a failure.

    Must not be called in a transaction, since it waits for the provider.

    :raises ModelNotFoundError: there is no such model.
    """
    model, began = get_model(alias, user_id=None), time.monotonic()
    spec = model.spec
    sampling = replace(spec.parameters, tool_choice=None, response_format=None)
    payload = {"messages": [{"role": "user", "content": CHECK_QUESTION}]}
    payload |= settle_parameters(spec, sampling, has_tools=False).sent
    asked = Request(payload=payload, max_output_tokens=64, seconds=min(CHECK_SECONDS, spec.total_timeout_seconds))
    reply = waiting_for(complete)(model, asked)
    milliseconds = round((time.monotonic() - began) * 1000)
    problem = "" if reply.error is None else reply.error.message
    if spec.api_key:
        # Some providers repeat the key in their error.
        problem = problem.replace(spec.api_key, "…")
    result = ModelCheck(
        at=timezone.now().isoformat(),
        milliseconds=milliseconds,
        answer=excerpt(reply.text.strip(), LONGEST_ANSWER),
        finish_reason=excerpt(reply.finish_reason, 64),
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        usage_source=str(reply.usage.source),
        capabilities=() if spec.api_base else stated_capabilities(spec.litellm_model),
        code="" if reply.error is None else reply.error.code,
        problem=excerpt(problem, LONGEST_PROBLEM),
    )
    # The shipped model has no row, so nothing is kept for it.
    LanguageModel.objects.filter(alias=alias).update(last_check=asdict(result))
    return result, reply.error


def read_check(stored: dict[str, Any]) -> ModelCheck | None:
    """Return the check kept in a model's row, or ``None`` if it was not checked since it last changed."""
    return ModelCheck(**stored | {"capabilities": tuple(stored["capabilities"])}) if stored else None


def find_key(prefix: str) -> KeyRecord | None:
    """Return the key with this prefix if its owner's account is active."""
    row = _BY_PREFIX.one(prefix=prefix)
    return _key(row) if row else None


def find_key_with_owner(prefix: str) -> tuple[KeyRecord, User] | None:
    """Return the key with this prefix and its owner, whose account is active; in one query, since every request asks."""
    row = _WITH_OWNER.one(prefix=prefix)
    if row is None:
        return None
    names = _columns_of_owner()
    return _key(row), User.from_db(DEFAULT_DB_ALIAS, names, [getattr(row, f"user_{name}") for name in names])


def list_keys(*, owner_id: int | None = None) -> list[KeyRecord]:
    """Return all keys, or those of one person, newest first."""
    rows = _keys() if owner_id is None else _keys().filter(owner_id=owner_id)
    return [_key(row) for row in rows.order_by("-created_at", "prefix")]


def _keys() -> QuerySet[ApiKey]:
    return ApiKey.objects.annotate(home_id=HOME_OF_OWNER, owner_name=F("owner__username"))


_BY_PREFIX: CompiledQuery[Any] = CompiledQuery(lambda: _keys().filter(prefix=Param("prefix"), owner__is_active=True))


_WITH_OWNER: CompiledQuery[Any] = CompiledQuery(
    lambda: (
        _keys()
        .filter(prefix=Param("prefix"), owner__is_active=True)
        .annotate(**{f"user_{name}": F(f"owner__{name}") for name in _columns_of_owner()})
    )
)


def _columns_of_owner() -> list[str]:
    return [field.attname for field in User._meta.concrete_fields]


def _key(row: Any) -> KeyRecord:
    return record_of(KeyRecord, row, is_at_home=row.organisation_id == row.home_id)


def create_key(*, owner_id: int, scope: str = "all", mode: str = "", name: str = "") -> KeyText:
    """Make a key for the organisation that its owner is in. Its text is returned only here and is not kept.

    :raises InvalidRequest: there is no such scope or mode, or its owner has too many keys.
    """
    if ApiKey.objects.filter(owner_id=owner_id, revoked_at__isnull=True).count() >= MOST_KEYS:
        raise InvalidRequest(
            gettext_noop("A person has at most %(most)s keys. Revoke one that is not used any more."),
            {"most": MOST_KEYS},
        )
    if mode not in MODES:
        raise InvalidRequest(f"A key's mode is {' or '.join(filter(None, MODES))}, not {mode!r}", field="mode")
    if scope not in SCOPES:
        raise InvalidRequest(f"A key's scope is {' or '.join(SCOPES)}, not {scope!r}", field="scope")
    key = new_key()
    whose = {"owner_id": owner_id, "organisation_id": home_of(owner_id)}
    ApiKey.objects.create(prefix=key.prefix, **whose, secret_hash=key.secret_hash, scope=scope, mode=mode, name=name)
    return key


def revoke_key(prefix: str, *, owner_id: int | None = None) -> None:
    """Revoke a key from the next request on. Revoking it again does nothing.

    :raises NotFound: no key has this prefix, or it is not the owner's.
    """
    found = ApiKey.objects.filter(prefix=encode_text(prefix), **({} if owner_id is None else {"owner_id": owner_id}))
    if not found.filter(revoked_at__isnull=True).update(revoked_at=timezone.now()) and not found.exists():
        raise NotFound("No key has this prefix. 'manage.py apikey list' shows the ones there are.", prefix=prefix)


def revoke_keys(*, owner_id: int) -> int:
    """Revoke all keys of a person; return how many there were."""
    return ApiKey.objects.filter(owner_id=owner_id, revoked_at__isnull=True).update(revoked_at=timezone.now())


def touch_key(key: KeyRecord) -> None:
    """Write when a key was last used, to the minute."""
    now = timezone.now()
    # Asked before the database is: a statement that changes nothing still waits for SQLite's other writers.
    if key.last_used_at is None or key.last_used_at < now - TOUCH_EVERY:
        ApiKey.objects.filter(prefix=key.prefix).update(last_used_at=now)

"""Settings as values: the configuration of a session, and the model behind an alias."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Exists, Q, QuerySet
from django.utils.module_loading import import_string
from django.utils.translation import gettext_noop

from mnesis_core.compaction.requests import SHIPPED, Prompts, read_prompts
from mnesis_core.config import Config, override, override_as_stored
from mnesis_core.errors import InvalidRequest, ModelNotFoundError, NotListed
from mnesis_core.llm.interface import LimitSource, Model, ModelSpec, Prices, settle_limits
from mnesis_core.llm.parameters import KEPT_NAMES, read_parameters, read_stored
from mnesis_core.llm.search_models import Embedder, Reranker
from mnesis_core.network.hosts import HostLists
from mnesis_core.providers.credentials import check_provider, unseal
from mnesis_core.records import SessionRecord, record_of
from sessions_app.database.tables import CompiledQuery, Param
from sessions_app.models import LanguageModel, ModelGrant

DEMO = ModelSpec(
    alias="demo",
    litellm_model="demo/chat",
    # Small on purpose, so that a new user sees a compaction within minutes.
    context_window=8_000,
    max_output_tokens=1_000,
)

UNREADABLE_KEY = gettext_noop(
    "The stored key of this model cannot be read: it was stored for another address, or with another SECRET_KEY. Enter it again on the page Models."
)

SECTIONS = ("parameters", "turn", "max_output_tokens", "limits")
"""What an assistant or a project may configure of sessions: nothing that names another model, which its users may not have."""

_BY_ALIAS = CompiledQuery(lambda: LanguageModel.objects.filter(alias=Param("alias")))
_GRANTS: QuerySet[Any, Any] = ModelGrant.objects.values("model")


@cache
def site_config() -> Config:
    """Return the defaults of ``mnesis_core.config``, changed by the TOML file that ``MNESIS_CONFIG`` names.

    :raises ImproperlyConfigured: the file is missing, is not TOML, or holds a wrong value.
    """
    path = settings.MNESIS["CONFIG_FILE"]
    if not path:
        return Config()
    try:
        return _checked(override(Config(), tomllib.loads(Path(path).read_text())))
    except OSError as error:
        raise ImproperlyConfigured(f"MNESIS_CONFIG: {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, InvalidRequest) as error:
        raise ImproperlyConfigured(f"MNESIS_CONFIG: {path}: {error}") from error


@cache
def site_prompts() -> Prompts:
    """Return the prompts of compaction: the shipped ones, or those in the folder that ``MNESIS_PROMPTS`` names.

    Sessions have no prompts of their own, because a session's owner must not name files of this machine.

    :raises ImproperlyConfigured: the folder cannot be read, or holds a file that is not a prompt.
    """
    folder = settings.MNESIS["PROMPT_FOLDER"]
    if not folder:
        return SHIPPED
    try:
        return read_prompts(Path(folder))
    except OSError as error:
        raise ImproperlyConfigured(f"MNESIS_PROMPTS: {folder} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ImproperlyConfigured(f"MNESIS_PROMPTS: {error}") from error


def session_config(overrides: dict[str, Any]) -> Config:
    """Return the configuration of a session, ignoring overrides that are no longer understood."""
    return override_as_stored(site_config(), overrides)


def instructions_of(session: SessionRecord) -> str:
    """Return what the session's model is told before everything else, as it is now."""
    own = session.config.get("instructions")
    return own if isinstance(own, str) else session.system_prompt or site_config().instructions


def without_instructions(overrides: dict[str, Any]) -> dict[str, Any]:
    """Return overrides for a session that another one launches, which is told what it is there for."""
    return {name: value for name, value in overrides.items() if name != "instructions"}


def checked_config(overrides: dict[str, Any]) -> Config:
    """:raises InvalidRequest: an override is unknown or out of its bounds."""
    return _checked(override(site_config(), overrides))


@dataclass(frozen=True, slots=True)
class DefaultsRefused:
    """What is said of defaults that are not for an assistant or a project to set."""

    section: str
    ask_before: str
    read_only: str


OF_ASSISTANT = DefaultsRefused(
    gettext_noop("an assistant configures %(names)s, not %(section)s"),
    gettext_noop("an assistant asks at least before what the site asks before"),
    gettext_noop("this site has tools only read, and an assistant does not change that"),
)
OF_PROJECT = DefaultsRefused(
    gettext_noop("a project configures %(names)s, not %(section)s"),
    gettext_noop("a project asks at least before what the site asks before"),
    gettext_noop("this site has tools only read, and a project does not change that"),
)


def check_defaults(values: dict[str, Any], *, refused: DefaultsRefused) -> None:
    """Check what an assistant or a project configures of sessions, which are also those of people who have not read it.

    :raises InvalidRequest: a value is unknown or out of its bounds, is not for others to say, or loosens what the site permits.
    """
    for section in values:
        if section not in SECTIONS:
            raise InvalidRequest(
                refused.section,
                {"names": ", ".join(SECTIONS), "section": repr(section[:100])},
                field=f"config.{section[:100]}",
            )
    of_site, turn = site_config().turn, checked_config(values).turn
    if not set(of_site.ask_before) <= set(turn.ask_before):
        raise InvalidRequest(refused.ask_before, field="turn.ask_before")
    if of_site.read_only and not turn.read_only:
        raise InvalidRequest(refused.read_only, field="turn.read_only")


def _checked(config: Config) -> Config:
    """:raises InvalidRequest: one of its parameters is unknown or out of its bounds."""
    read_parameters(config.parameters, allowed=KEPT_NAMES)
    return config


def default_model() -> str:
    return str(settings.MNESIS["DEFAULT_MODEL"])


def host_lists() -> HostLists:
    lists: HostLists = settings.MNESIS["HOST_LISTS"]
    return lists


def users_are_sessions() -> bool:
    """Return whether ``user`` in an OpenAI-style request names a session of the key's owner, created on first use."""
    return bool(settings.USER_IS_SESSION)


def list_models(*, user_id: int | None) -> list[ModelSpec]:
    """Return the models that a person may use, or all of them, the shipped demo first and without keys.

    Each names as fallbacks only models that the person may use too.
    """
    rows = LanguageModel.objects.order_by("alias")
    demo = [] if rows.filter(alias=DEMO.alias).exists() else [DEMO]
    if user_id is None:
        return [*demo, *map(spec_of, rows)]
    specs = [*demo, *map(spec_of, rows.filter(allowed_to(user_id, _GRANTS)))]
    known = {spec.alias for spec in specs}
    return [replace(spec, fallbacks=tuple(name for name in spec.fallbacks if name in known)) for spec in specs]


def allowed_to(user_id: int, grants: QuerySet[Any]) -> Q:
    """Return which rows a person may use: unrestricted ones, and those granted to them or to one of their groups.

    A superuser may use all of them.

    :param grants: with ``group`` and ``user``; its values are the rows' keys
    """
    granted = grants.filter(Q(user=user_id) | Q(group__user=user_id))
    administrator = User.objects.filter(pk=user_id, is_superuser=True, is_active=True)
    return Q(is_restricted=False) | Q(pk__in=granted) | Q(Exists(administrator))


def passes_on_unrecorded() -> bool:
    """Return whether requests through the gateway go on while the record cannot be written."""
    return bool(settings.GATEWAY_WITHOUT_RECORD)


def gateway_aliases() -> list[str]:
    """Return the models whose entries say that they are asked through the gateway."""
    return list(LanguageModel.objects.filter(through_gateway=True).values_list("alias", flat=True))


def has_real_models() -> bool:
    return LanguageModel.objects.exclude(litellm_model__startswith="demo/").exists()


def get_spec(alias: str, *, user_id: int | None) -> ModelSpec:
    """Return what is needed to reach a model, including its key.

    :param user_id: the owner of the sessions; ``None`` if the site itself asks
    :raises ModelNotFoundError: there is no such model, or this person may not use it.
    """
    row = _BY_ALIAS.one(alias=alias)
    if row is not None and (
        user_id is None
        or not row.is_restricted
        or LanguageModel.objects.filter(allowed_to(user_id, _GRANTS), pk=row.pk).exists()
    ):
        return _bounded(row) if not row.entered_on_host else _with_key(row)
    if row is None and alias == DEMO.alias:
        return DEMO
    # The same words in both cases, because not every person may learn that a model exists.
    raise ModelNotFoundError(
        gettext_noop("no model is called %(alias)s; 'manage.py model list' shows the ones there are"),
        {"alias": repr(alias)},
        model=alias,
    )


def _bounded(row: LanguageModel) -> ModelSpec:
    """Return a model entered on a page, as far as the host's lists still allow it: they may have become shorter."""
    addresses = host_lists().addresses
    try:
        check_listed(litellm_model=row.litellm_model, api_base=row.api_base, api_key_env=row.api_key_env)
    except NotListed as error:
        return replace(spec_of(row), refusal=error.message, listed_addresses=addresses)
    return replace(_with_key(row), listed_addresses=addresses)


def check_listed(*, litellm_model: str, api_base: str, api_key_env: str) -> None:
    """Check how a model is reached that was not entered by a command on the host.

    :raises NotListed: the host's owner has not listed it; ``field`` says what.
    """
    lists = host_lists()
    check_provider(litellm_model, api_base=api_base)
    if api_base:
        lists.check_url(api_base, field="api_base")
    if api_key_env:
        lists.check_variable(api_key_env, url=api_base, field="api_key_env")


def _with_key(row: LanguageModel) -> ModelSpec:
    """Return a model with its key, or with a refusal if the key that was stored cannot be read."""
    if not row.sealed_key:
        return spec_of(row, api_key=os.environ.get(row.api_key_env, "") if row.api_key_env else "")
    place = {"litellm_model": row.litellm_model, "api_base": row.api_base}
    key = unseal(row.sealed_key, **place, secrets=site_secrets())
    if key is None:
        return replace(spec_of(row), refusal=UNREADABLE_KEY)
    return spec_of(row, api_key=key)


def site_secrets() -> tuple[str, ...]:
    """Return the site's secret, and after it earlier ones that are still accepted."""
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


def get_spec_to_read(alias: str) -> ModelSpec:
    """Return a model's spec for reading a session; a removed model is measured by the default limits."""
    try:
        return get_spec(alias, user_id=None)
    except ModelNotFoundError:
        return ModelSpec(alias=alias, litellm_model="", **settle_limits())


def get_model(alias: str, *, user_id: int | None) -> Model:
    """:param user_id: the owner of the sessions; ``None`` if the site itself asks
    :raises ModelNotFoundError: there is no such model, or this person may not use it.
    """
    make = import_string(settings.MNESIS["MODEL_FACTORY"])
    model: Model = make(get_spec(alias, user_id=user_id))
    return model


def embedding_spec() -> ModelSpec | None:
    """Return the embedding model of the ranked search, if the site has one.

    :raises ModelNotFoundError: there is no such model.
    """
    alias = site_config().search.embedding_model
    return get_spec(alias, user_id=None) if alias else None


def get_embedder(spec: ModelSpec) -> Embedder:
    make = import_string(settings.MNESIS["EMBEDDER_FACTORY"])
    embedder: Embedder = make(spec)
    return embedder


def rerank_spec() -> ModelSpec | None:
    """Return the reranker of the ranked search, if the site has one.

    :raises ModelNotFoundError: there is no such model.
    """
    alias = site_config().search.rerank_model
    return get_spec(alias, user_id=None) if alias else None


def get_reranker(spec: ModelSpec) -> Reranker:
    make = import_string(settings.MNESIS["RERANKER_FACTORY"])
    reranker: Reranker = make(spec)
    return reranker


def spec_of(row: LanguageModel, *, api_key: str = "") -> ModelSpec:
    return record_of(
        ModelSpec,
        row,
        api_key=api_key,
        context_window_source=LimitSource(row.context_window_source),
        max_output_source=LimitSource(row.max_output_source),
        prices=Prices(
            input=row.input_micros_per_million,
            output=row.output_micros_per_million,
            cache_read=row.cache_read_micros_per_million,
            cache_write=row.cache_write_micros_per_million,
            cache_write_1h=row.cache_write_1h_micros_per_million,
        ),
        prices_source=LimitSource(row.prices_source),
        parameters=read_stored(row.parameters),
        fallbacks=tuple(row.fallbacks),
        refusal="",
        listed_addresses=None,
    )

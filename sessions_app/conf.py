"""The one place where settings become values: the configuration of a session, and the model behind an alias."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mnesis_core.compaction.prompts import SHIPPED, Prompts, read_prompts
from mnesis_core.config import Config
from mnesis_core.errors import InvalidRequest, ModelNotFoundError
from mnesis_core.limits import settle_limits
from mnesis_core.llm import LimitSource, Model, ModelSpec, Prices
from mnesis_core.overrides import override, override_as_stored
from mnesis_core.text import encode_text
from sessions_app.compiled import Asked, CompiledQuery
from sessions_app.models import LanguageModel

DEMO = ModelSpec(
    alias="demo",
    litellm_model="demo/chat",
    # Small on purpose: a newcomer sees a compaction within minutes.
    context_window=8_000,
    max_output_tokens=1_000,
)

_BY_ALIAS = CompiledQuery(lambda: LanguageModel.objects.filter(alias=Asked("alias")))


@cache
def site_config() -> Config:
    """The defaults of ``mnesis_core.config``, changed by the TOML file that ``MNESIS_CONFIG`` names.

    :raises ImproperlyConfigured: the file is missing, is no TOML, or holds a wrong value.
    """
    path = settings.MNESIS["CONFIG_FILE"]
    if not path:
        return Config()
    try:
        return override(Config(), tomllib.loads(Path(path).read_text()))
    except OSError as error:
        raise ImproperlyConfigured(f"MNESIS_CONFIG: {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, InvalidRequest) as error:
        raise ImproperlyConfigured(f"MNESIS_CONFIG: {path}: {error}") from error


@cache
def site_prompts() -> Prompts:
    """The prompts of compaction: the shipped ones, or the site's own from the folder that ``MNESIS_PROMPTS`` names.

    Of the site alone, never of a session: who owns a session is not to name files of this machine.

    :raises ImproperlyConfigured: the folder cannot be read, or holds a file that is no prompt.
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
    """The configuration of a session, as far as it is understood still."""
    return override_as_stored(site_config(), overrides)


def checked_config(overrides: dict[str, Any]) -> Config:
    """The configuration of a session as somebody asks for it.

    :raises InvalidRequest: an override is unknown or out of its bounds.
    """
    return override(site_config(), overrides)


def default_model() -> str:
    """The alias of the model that new sessions get when nobody chooses."""
    return str(settings.MNESIS["DEFAULT_MODEL"])


def users_are_sessions() -> bool:
    """Whether ``user`` in an OpenAI-style request names a session of the key's owner, made when it is first named."""
    return bool(settings.USER_IS_SESSION)


def list_models() -> list[ModelSpec]:
    """Every model there is, the shipped demo first; without keys."""
    rows = [spec_of(row) for row in LanguageModel.objects.order_by("alias")]
    return rows if any(spec.alias == DEMO.alias for spec in rows) else [DEMO, *rows]


def has_real_models() -> bool:
    """Whether any model is entered that is not the demo."""
    return LanguageModel.objects.exclude(litellm_model__startswith="demo/").exists()


def get_spec(alias: str) -> ModelSpec:
    """What is needed to reach the model of this name, its key included.

    :raises ModelNotFoundError: there is no such model.
    """
    row = _BY_ALIAS.one(alias=encode_text(alias))
    if row is not None:
        return spec_of(row, api_key=os.environ.get(row.api_key_env, "") if row.api_key_env else "")
    if alias == DEMO.alias:
        return DEMO
    raise ModelNotFoundError(
        f"no model is called {alias!r}; 'manage.py model list' shows the ones there are", model=alias
    )


def get_spec_to_read(alias: str) -> ModelSpec:
    """Like ``get_spec``, for reading a session: one whose model was removed is measured by the default limits."""
    try:
        return get_spec(alias)
    except ModelNotFoundError:
        return ModelSpec(alias=alias, litellm_model="", **settle_limits())


def get_model(alias: str) -> Model:
    """The model of this name, ready to be asked.

    :raises ModelNotFoundError: there is no such model.
    """
    make = import_string(settings.MNESIS["MODEL_FACTORY"])
    model: Model = make(get_spec(alias))
    return model


def spec_of(row: LanguageModel, *, api_key: str = "") -> ModelSpec:
    """A model's row as a value."""
    return ModelSpec(
        alias=row.alias,
        litellm_model=row.litellm_model,
        api_base=row.api_base,
        api_key=api_key,
        context_window=row.context_window,
        context_window_source=LimitSource(row.context_window_source),
        max_output_tokens=row.max_output_tokens,
        max_output_source=LimitSource(row.max_output_source),
        prices=Prices(
            input=row.input_micros_per_million,
            output=row.output_micros_per_million,
            cache_read=row.cache_read_micros_per_million,
            cache_write=row.cache_write_micros_per_million,
        ),
        prices_source=LimitSource(row.prices_source),
        shared_ratio=row.shared_ratio,
        timeout_seconds=row.timeout_seconds,
        total_timeout_seconds=row.total_timeout_seconds,
        fallbacks=tuple(row.fallbacks),
    )

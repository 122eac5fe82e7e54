"""The key and the address of a model call. It gets both or neither, and never one of them from the environment.

A key that is stored is encrypted with the site's secret, for the one place that it may be sent to: the place is part of what
the encrypting key is made from. So it cannot be read for another address, whatever changes the row that holds it. ``secrets``
are the site's: the current one, which encrypts, and after it earlier ones, which still decrypt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from mnesis_core.errors import ModelNotAllowed, ModelNotConfigured, NotListed, gettext_noop
from mnesis_core.llm.interface import ModelSpec

PLACEHOLDER_KEY = "none"  # Sent to servers that need no key, because the client library insists on one.

_KEYLESS = frozenset({"demo", "docker_model_runner", "hosted_vllm", "llamafile", "lm_studio", "ollama", "ollama_chat"})
# These take the machine's own identity from the cloud they run in.
_SIGNED_IN_OTHERWISE = frozenset({"bedrock", "sagemaker", "sagemaker_chat", "vertex_ai", "vertex_ai_beta"})
# Explicit, because litellm would otherwise send the key to whatever OPENAI_BASE_URL names.
_ADDRESSES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
# Providers whose requests are known to go where the address says, through clients that check it (``pin``).
AT_ANY_ADDRESS = frozenset(
    {
        *("anthropic", "docker_model_runner", "gemini", "hosted_vllm", "llamafile", "lm_studio", "ollama"),
        *("ollama_chat", "openai"),
    }
)
# Providers with one address that holds no part of a model's name: others make it a host's name, or take it for one.
_AT_THEIR_OWN = AT_ANY_ADDRESS | {
    *("ai21_chat", "cerebras", "codestral", "cohere", "cohere_chat", "dashscope", "deepinfra", "deepseek", "demo"),
    *("fireworks_ai", "groq", "mistral", "moonshot", "nebius", "nvidia_nim", "openrouter", "perplexity", "sambanova"),
    *("together_ai", "xai", "zai"),
}
_PURPOSE = "mnesis.model-key"
_LOCAL_SUFFIXES = (".home.arpa", ".internal", ".lan", ".local", ".localhost")


class KeyState(StrEnum):
    """The secret of the site that decrypts a stored key: the current one, an earlier one, or none."""

    CURRENT = "current"
    EARLIER = "earlier"
    UNREADABLE = "unreadable"


def provider_of(litellm_model: str) -> str:
    provider, slash, _ = litellm_model.partition("/")
    return provider if slash else ""


def check_provider(litellm_model: str, *, api_base: str) -> None:
    """Check the provider of a model that no command on the host has entered.

    :raises NotListed: its name could lead a key, or the machine's own identity, to an address of the caller's choice.
    """
    known = AT_ANY_ADDRESS if api_base else _AT_THEIR_OWN
    if provider_of(litellm_model) in known:
        return
    elsewhere = gettext_noop(
        "Models of this provider can be entered at an address of your own only by a command on the host: manage.py model add. "
        "Otherwise the provider must be one of %(known)s, as in openai/NAME."
    )
    here = gettext_noop(
        "Models of this provider can be entered here only by a command on the host: manage.py model add. Otherwise the "
        "provider must be one of %(known)s, as in openai/NAME."
    )
    told = elsewhere if api_base else here
    raise NotListed(told, {"known": ", ".join(sorted(known))}, field="litellm_model")


def key_and_address(spec: ModelSpec) -> tuple[str | None, str | None]:
    """Return the key and the address of a model. None leaves it to the provider's own sign-in or its only address.

    :raises ModelNotConfigured: the provider wants a key and there is none, or the address is not one
    :raises ModelNotAllowed: the host's lists do not hold what the model's entry names
    """
    if spec.refusal:
        raise ModelNotAllowed(spec.refusal, model=spec.alias)
    is_web_address = spec.api_base.lower().startswith(("http://", "https://")) and host_of(spec.api_base)
    if spec.api_base and not is_web_address:
        raise ModelNotConfigured(
            gettext_noop(
                "The address of the model '%(alias)s' is not a web address. It must begin with http:// or https://."
            ),
            {"alias": spec.alias},
            model=spec.alias,
        )
    provider = provider_of(spec.litellm_model)
    address = spec.api_base or _ADDRESSES.get(provider)
    if spec.api_key:
        return spec.api_key, address
    if provider in _SIGNED_IN_OTHERWISE:
        return None, address
    if provider in _KEYLESS or _is_local(spec.api_base):
        return PLACEHOLDER_KEY, address
    raise ModelNotConfigured(
        gettext_noop(
            "The model '%(alias)s' has no key, and its provider wants one. Enter one on the page Models, or set the environment variable that the model's entry names. If its server needs no key, any word will do."
        ),
        {"alias": spec.alias},
        model=spec.alias,
    )


def _is_local(address: str) -> bool:
    host = (host_of(address) or "").rstrip(".").lower()
    if not host:
        return False
    try:
        found = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_SUFFIXES)
    return found.is_loopback or found.is_private or found.is_link_local


def host_of(address: str) -> str | None:
    """Return the host's name, without port, path or the sign-in that an address may hold; None when there is none."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def seal(key: str, *, litellm_model: str, api_base: str, secrets: Sequence[str]) -> str:
    """Return a provider's key as a text for the database."""
    return _cipher(litellm_model, api_base, secrets).encrypt(key.encode()).decode()


def unseal(sealed: str, *, litellm_model: str, api_base: str, secrets: Sequence[str]) -> str | None:
    """Return the key, or ``None`` if it was sealed for another provider or address, or with another secret."""
    try:
        return _cipher(litellm_model, api_base, secrets).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def reseal(sealed: str, *, litellm_model: str, api_base: str, secrets: Sequence[str]) -> tuple[str, KeyState]:
    """Return a sealed key as the current secret seals it, and which secret it was sealed with; as it is if it cannot be read."""
    place = {"litellm_model": litellm_model, "api_base": api_base}
    if unseal(sealed, **place, secrets=secrets[:1]) is not None:
        return sealed, KeyState.CURRENT
    key = unseal(sealed, **place, secrets=secrets)
    if key is None:
        return sealed, KeyState.UNREADABLE
    return seal(key, **place, secrets=secrets), KeyState.EARLIER


def _cipher(litellm_model: str, api_base: str, secrets: Sequence[str]) -> MultiFernet:
    place = "\0".join((_PURPOSE, provider_of(litellm_model), api_base)).encode()
    digests = (hmac.digest(secret.encode(), place, hashlib.sha256) for secret in secrets)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])

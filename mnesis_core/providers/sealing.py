"""Keys of providers at rest: encrypted with the site's secret, each for the one place that it may be sent to.

The place is part of what the encrypting key is made from. So a key that was stored for one address cannot be read for another
one, whatever changes the row that holds it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken

from mnesis_core.providers.credentials import provider_of

_PURPOSE = "mnesis.model-key"


def seal(key: str, *, litellm_model: str, api_base: str, secret: str) -> str:
    """Return a provider's key as a text for the database."""
    return _cipher(litellm_model, api_base, secret).encrypt(key.encode()).decode()


def unseal(sealed: str, *, litellm_model: str, api_base: str, secret: str) -> str | None:
    """Return the key, or ``None`` if it was sealed for another provider or address, or with another secret."""
    try:
        return _cipher(litellm_model, api_base, secret).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def _cipher(litellm_model: str, api_base: str, secret: str) -> Fernet:
    place = "\0".join((_PURPOSE, provider_of(litellm_model), api_base))
    return Fernet(base64.urlsafe_b64encode(hmac.digest(secret.encode(), place.encode(), hashlib.sha256)))

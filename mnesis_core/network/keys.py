"""API keys as text: ``mns_<prefix>_<secret>``. The prefix finds the key, the secret proves it."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime

# ``all`` allows what the owner may do; ``read`` allows reading only.
SCOPES = ("all", "read")

_KEY = re.compile(r"mns_([0-9a-f]{12})_([0-9A-Za-z_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyText:
    prefix: str
    secret: str

    def __str__(self) -> str:
        return f"mns_{self.prefix}_{self.secret}"

    @property
    def secret_hash(self) -> str:
        # The secret is 256 random bits, so one fast hash is as good as a slow one.
        return hashlib.sha256(self.secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    prefix: str
    owner_id: int
    owner_name: str
    scope: str
    secret_hash: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @property
    def may_write(self) -> bool:
        return self.scope == "all"

    def is_proven_by(self, key: KeyText) -> bool:
        """Return whether this text is this key, and the key is still valid."""
        return hmac.compare_digest(self.secret_hash, key.secret_hash) and self.revoked_at is None


def new_key() -> KeyText:
    """Return a new random key."""
    return KeyText(prefix=secrets.token_hex(6), secret=secrets.token_urlsafe(32))


def parse_key(text: str) -> KeyText | None:
    """Return the key in a header's text, or None if it is not one of ours."""
    match = _KEY.fullmatch(text)
    return KeyText(prefix=match[1], secret=match[2]) if match else None

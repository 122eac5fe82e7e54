"""Hashers that are fast; one of them counts."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.hashers import MD5PasswordHasher

from mnesis_site.sign_in import LanedPBKDF2PasswordHasher, MarkedHasher


class CountingHasher(LanedPBKDF2PasswordHasher):
    """The site's own with one round of its hash instead of a million."""

    iterations = 1
    count: ClassVar[int] = 0
    """Passwords hashed so far."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Count one, as the site hashes it."""
        type(self).count += 1
        return super().encode(password, salt, iterations)


class QuickHasher(MarkedHasher, MD5PasswordHasher):
    """One that costs nothing, for tests that are not about passwords."""

"""``manage.py reencrypt_keys``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import CommandError

from mnesis_core.providers.credentials import KeyState
from sessions_app.llm.model_store import reencrypt_keys
from sessions_app.management.acting import SiteCommand


class Command(SiteCommand):
    """Encrypt the stored keys of models with the current SECRET_KEY, as far as it or one of SECRET_KEY_FALLBACKS reads them.

    Exits with 1 if one of them cannot be read. May run beside the site, and again.
    """

    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        keys = reencrypt_keys()
        count = Counter(key.state for key in keys)
        self.stdout.write(
            f"Stored keys: {count[KeyState.EARLIER]} re-encrypted, {count[KeyState.CURRENT]} already current, "
            f"{count[KeyState.UNREADABLE]} unreadable."
        )
        lost = [f"{key.alias} ({key.litellm_model})" for key in keys if key.state is KeyState.UNREADABLE]
        if lost:
            raise CommandError(
                f"The stored keys of these models cannot be read: {', '.join(lost)}. They were stored for another "
                "address, or with a SECRET_KEY that is not in SECRET_KEY_FALLBACKS. Enter them again on the page Models."
            )

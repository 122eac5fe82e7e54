"""Text of others as data in a prompt."""

from __future__ import annotations

import re

_OWN_TAGS = re.compile(r"<(?=/?(?:summary|summaries|conversation|inbox_message)\b)", re.IGNORECASE)


def quote(text: str) -> str:
    """Text as data: it can neither open nor close one of the tags that we put around quoted text."""
    return _OWN_TAGS.sub("&lt;", text)

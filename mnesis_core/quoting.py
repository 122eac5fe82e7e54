"""Text of others as data in a prompt."""

from __future__ import annotations

import re

_OWN_TAGS = re.compile(r"<(?=/?(?:summary|summaries|conversation|inbox_message)\b)", re.IGNORECASE)
_FILE_TAGS = re.compile(r"<(?=\s*/?\s*file_text\b)", re.IGNORECASE)


def quote(text: str) -> str:
    """Text as data: it can neither open nor close one of the tags that we put around quoted text."""
    return _OWN_TAGS.sub("&lt;", text)


def quote_file(text: str) -> str:
    """Likewise the text of a file, which stands between tags of its own."""
    return _FILE_TAGS.sub("&lt;", text)

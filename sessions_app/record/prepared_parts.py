"""Parts prepared for writing before a session's lock is taken: encoded, counted, and their words extracted.

Under the lock all other writers wait, on SQLite those of the whole site. Store functions prepare plain parts themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from mnesis_core.messages import Part
from mnesis_core.values import dataclass
from sessions_app.record.rows import columns_of
from sessions_app.search.index import Text, texts_of_part, with_words

_NO_TEXTS = dict.fromkeys(("id", "content", "label", "tool_name", "tool_input"), "") | dict.fromkeys(
    ("output", "error_message")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPart:
    """The columns of a part and its findable texts."""

    columns: dict[str, Any]
    texts: tuple[Text, ...]

    def texts_of(self, part_id: str, message_seq: int) -> list[Text]:
        """Return the texts of the part at its place."""
        return [text._replace(source_id=part_id, first_seq=message_seq, last_seq=message_seq) for text in self.texts]


def prepare_part(part: Part | PreparedPart) -> PreparedPart:
    """Prepare a part; a prepared one is returned as it is."""
    if isinstance(part, PreparedPart):
        return part
    columns = columns_of(part)
    texts = texts_of_part(SimpleNamespace(**_NO_TEXTS | columns), 0)
    return PreparedPart(columns=columns, texts=tuple(map(with_words, texts)))


def prepare_parts(parts: Iterable[Part]) -> list[PreparedPart]:
    """Parts prepared for writing before a session's lock is taken: encoded, counted, and their words extracted.

    Under the lock all other writers wait, on SQLite those of the whole site. Store functions prepare plain parts themselves.
    """
    return [prepare_part(part) for part in parts]

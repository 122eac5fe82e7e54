"""Parts made ready to be written: encoded, counted and their words found, before a session's lock is taken.

Under the lock everybody else waits, on SQLite the whole site. A store function that is given a plain part makes it
ready itself.
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
class ReadyPart:
    """The columns of a part, and what the search is to find of it."""

    columns: dict[str, Any]
    texts: tuple[Text, ...]

    def texts_of(self, part_id: str, message_seq: int) -> list[Text]:
        """The texts, now that the part has its place."""
        return [text._replace(source_id=part_id, first_seq=message_seq, last_seq=message_seq) for text in self.texts]


def make_ready(part: Part | ReadyPart) -> ReadyPart:
    """A part made ready; one that is stays as it is."""
    if isinstance(part, ReadyPart):
        return part
    columns = columns_of(part)
    texts = texts_of_part(SimpleNamespace(**_NO_TEXTS | columns), 0)
    return ReadyPart(columns=columns, texts=tuple(map(with_words, texts)))


def make_all_ready(parts: Iterable[Part]) -> list[ReadyPart]:
    """Parts made ready, in order."""
    return [make_ready(part) for part in parts]

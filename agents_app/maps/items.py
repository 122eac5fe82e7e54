"""Lines of a run's input, as its items name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from files_app.contents import reading


class Span(Protocol):
    """Anything that says where a line is."""

    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


S = TypeVar("S", bound=Span)


def lines_of_items(content_id: str, items: Iterable[S]) -> Iterator[tuple[S, bytes]]:
    """Each item with its line.

    :raises FileContentNotFound: the content is not kept here.
    """
    with reading(content_id) as read:
        for item in items:
            yield item, read(item.offset, item.length)

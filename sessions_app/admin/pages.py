"""Which stretch of a long list a page shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list."""

    number: int
    """From 1."""
    total: int
    """Items on all pages."""
    size: int

    @property
    def count(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """Items before this page."""
        return (self.number - 1) * self.size

    @property
    def last(self) -> int:
        """Items up to the end of this page."""
        return min(self.first + self.size, self.total)

    @property
    def previous(self) -> int | None:
        """The page before, if there is one."""
        return self.number - 1 if self.number > 1 else None

    @property
    def next(self) -> int | None:
        """The page after, if there is one."""
        return self.number + 1 if self.number < self.count else None


def page_of(number: str, *, total: int, size: int) -> Page:
    """The page that a query parameter asks for: the nearest there is, the first for what is no number."""
    wanted = parse_seq(number) or 1
    last = Page(number=1, total=total, size=size).count
    return Page(number=min(max(wanted, 1), last), total=total, size=size)


def parse_seq(text: str) -> int | None:
    """A whole number of at most 15 digits from a query parameter, or ``None``."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None

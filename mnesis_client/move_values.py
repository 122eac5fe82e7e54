"""Imports as the server says them: JSON objects with known fields."""

from __future__ import annotations

from typing import Literal, TypedDict

from mnesis_client.values import ErrorInfo


class Imported(TypedDict):
    """A session that an import made, or found."""

    id: str
    title: str


class Import(TypedDict):
    """An import. ``done`` of ``total`` ``unit`` are ``verb`` ("read", "stored"); a total of 0 is not known.

    What came in before an import failed stays, so ``sessions`` may name some of a failed one.
    """

    id: str
    state: Literal["waiting", "running", "done", "failed"]
    files: list[str]
    verb: str
    unit: str
    done: int
    total: int
    sessions: list[Imported]
    notes: list[str]
    error: ErrorInfo | None

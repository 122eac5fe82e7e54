"""TOML: its sections."""

from __future__ import annotations

import tomllib

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed


def explore(source: Source) -> Findings:
    try:
        document = tomllib.loads(source.text())
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unreadable(f"not valid TOML: {error}") from None
    sections = [name for name, value in document.items() if isinstance(value, dict)]
    keys = [name for name in document if name not in sections]
    return Findings(
        lines=(
            f"{counted(len(sections), 'section')}: {listed(sections)}",
            f"{counted(len(keys), 'top-level key')}: {listed(keys)}",
        )
    )

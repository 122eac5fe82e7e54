"""Tables in Parquet: their columns and size, from the footer alone."""

from __future__ import annotations

from typing import Any

import pyarrow as arrow
import pyarrow.parquet as arrow_parquet

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_FOOTER = 33_554_432
MOST_COLUMNS = 60
MOST_GROUPS = 1_000  # With more row groups, no column's range is computed.
VALUE_CHARACTERS = 30


def explore(source: Source) -> Findings:
    if source.size < 12:
        raise Unreadable(gettext_noop("too short for Parquet"))
    end = source.read(source.size - 8, 8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] == b"PARE":
        raise Unreadable(gettext_noop("it is encrypted"))
    if end[4:] != b"PAR1" or length > source.size:
        raise Unreadable(gettext_noop("it does not end as Parquet does; it may be cut off"))
    if length > MOST_FOOTER:
        raise Unreadable(fill(gettext_noop("its footer is larger than %(most)s bytes"), {"most": MOST_FOOTER}))
    try:
        with source.path.open("rb") as file:
            metadata = arrow_parquet.read_metadata(file)  # type: ignore[no-untyped-call]
        schema = metadata.schema.to_arrow_schema()
    except (arrow.ArrowException, OSError) as error:
        raise Unreadable(
            fill(gettext_noop("not readable as Parquet: %(reason)s"), {"reason": shown(str(error))})
        ) from None
    return Findings(lines=_lines(metadata, schema), covered="its footer; the rows themselves were not read")


def _lines(metadata: Any, schema: Any) -> list[str]:
    lines = [
        f"Parquet: {counted(metadata.num_rows, 'row')}, {counted(len(schema), 'column')}, "
        f"{counted(metadata.num_row_groups, 'row group')}",
        f"Written by: {shown(metadata.created_by or 'unknown')}",
    ]
    groups = [metadata.row_group(at) for at in range(min(metadata.num_row_groups, MOST_GROUPS + 1))]
    columns = range(min(metadata.num_columns, MOST_COLUMNS))
    if groups and columns:
        packed = dict.fromkeys(groups[0].column(at).compression for at in columns)
        lines.append(f"Compression: {listed(packed)}")
    spans: dict[str, str] = {}
    for at in columns if len(groups) <= MOST_GROUPS else ():
        if "." not in (path := metadata.schema.column(at).path):
            spans[path] = _span([group.column(at).statistics for group in groups])
    for field in list(schema)[:MOST_COLUMNS]:
        lines.append(f"{shown(field.name)}: {shown(str(field.type))}{spans.get(field.name, '')}")
    if len(schema) > MOST_COLUMNS:
        lines.append(f"and {len(schema) - MOST_COLUMNS:,} more columns")
    return lines


def _span(statistics: list[Any]) -> str:
    if not statistics or any(one is None or not one.has_min_max for one in statistics):
        return ""
    least, most = min(one.min for one in statistics), max(one.max for one in statistics)
    nulls = sum(one.null_count for one in statistics if one.has_null_count)
    return f", from {_value(least)} to {_value(most)}" + (f", {counted(nulls, 'null')}" if nulls else "")


def _value(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return shown(text, characters=VALUE_CHARACTERS)

"""JSON Lines: how many records, and which keys they have with values of which types."""

from __future__ import annotations

import json

from mnesis_core.files.kinds.text import count_lines
from mnesis_core.files.schemas import SchemaBuilder, schema_lines
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

# The lines after them are only counted.
MOST_RECORDS = 20_000
MOST_CHARACTERS = 67_108_864
# A longer line arrives in pieces, none of which is a record.
RECORD_CHARACTERS = 8_388_608


def explore(source: Source) -> Findings:
    builder = SchemaBuilder()
    records, broken, first_broken, characters, is_all = 0, 0, "", 0, True
    for number, line in enumerate(source.lines(RECORD_CHARACTERS), start=1):
        if records + broken >= MOST_RECORDS or characters > MOST_CHARACTERS:
            is_all = False
            break
        characters += len(line)
        if not line.strip("\x1e \t\r"):
            continue
        try:
            builder.value(json.loads(line.strip("\x1e")))
            records += 1
        except (ValueError, RecursionError) as error:
            broken += 1
            first_broken = first_broken or f"line {number:,}: {shown(str(error))}"
    if records <= broken:
        raise Unreadable(f"not JSON Lines: {first_broken or 'it is empty'}")
    lines = [counted(records, "record") if is_all else f"{counted(count_lines(source), 'line')}, one record each"]
    if broken:
        lines.append(f"{counted(broken, 'line is', 'lines are')} no JSON: {first_broken}")
    lines += schema_lines(builder.root, name="Each record:")
    covered = "all of it" if is_all else f"the first {records + broken:,} records; the others counted"
    return Findings(lines=lines, covered=covered)

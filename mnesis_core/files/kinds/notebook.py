"""Notebooks of Jupyter: language, cells, headings, what the code imports and defines, and which errors it left."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

# Most of a large notebook are pictures, which are cheap to parse.
MOST_BYTES = 67_108_864
MOST_CELLS = 5_000
CELL_CHARACTERS = 200_000
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w.]+)|^[ \t]*(?:library|require)\(\"?(\w+)", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async[ \t]+)?(?:def|class|function)[ \t]+(\w+)", re.MULTILINE)


def explore(source: Source) -> Findings:
    try:
        notebook = json.loads(source.text(MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not a notebook: {shown(str(error))}") from None
    every = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(every, list):
        raise Unreadable("not a notebook: it has no cells")
    every = [cell for cell in every if isinstance(cell, dict)]
    cells = every[:MOST_CELLS]
    code = [_text(cell.get("source")) for cell in cells if cell.get("cell_type") == "code"]
    prose = [_text(cell.get("source")) for cell in cells if cell.get("cell_type") == "markdown"]
    outputs = [output for cell in cells for output in _list(cell.get("outputs")) if isinstance(output, dict)]
    types = Counter(shown(str(cell.get("cell_type")), characters=20) for cell in every)
    data = (_dict(output.get("data")) or (output.get("output_type"),) for output in outputs)
    kinds = Counter(str(kind) for each in data for kind in each)

    metadata = _dict(notebook.get("metadata"))
    kernel, language = _dict(metadata.get("kernelspec")), _dict(metadata.get("language_info"))
    name = str(language.get("name") or kernel.get("language") or "unknown language")
    version = f" {language['version']}" if "version" in language else ""
    title = str(kernel.get("display_name") or "")
    lines = [
        shown(name + version)
        + (f" (kernel {shown(title)})" if title else "")
        + f"; {counted(len(every), 'cell')}: "
        + listed(f"{count:,} {type_}" for type_, count in types.most_common()),
        f"Imports {listed(_names(_IMPORT, code))}",
        f"Defines {listed(_names(_DEFINITION, code))}",
        f"{counted(len(outputs), 'output')}: {listed(f'{kind} ×{count:,}' for kind, count in kinds.most_common())}",
    ]
    errors = [output for output in outputs if output.get("output_type") == "error"]
    lines += [f"Error {shown(str(each.get('ename')))}: {shown(str(each.get('evalue')))}" for each in errors[:5]]
    headings = [heading for text in prose for heading in _HEADING.findall(text)]
    lines += [f"{marks} {shown(title)}" for marks, title in headings[:40]]
    if code and not headings:
        lines.append(f"The first code: {shown(code[0], characters=200)}")
    covered = "all of it" if len(every) <= MOST_CELLS else f"{MOST_CELLS:,} of {len(every):,} cells"
    return Findings(lines=lines, covered=covered)


def _names(pattern: re.Pattern[str], code: list[str]) -> dict[str, None]:
    return dict.fromkeys(name for text in code for match in pattern.finditer(text) for name in match.groups() if name)


def _text(source: Any) -> str:
    # The format keeps a cell's text whole or as lines.
    text = source if isinstance(source, str) else "".join(str(line) for line in _list(source))
    return text[:CELL_CHARACTERS]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

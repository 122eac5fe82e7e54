"""The reports that were made, as JSON files in the data directory.

They are no part of the record, so no table has them: a file is written under another name first and then renamed, so
every process of the site reads a whole one or none, whatever the database.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext_noop

from mnesis_core.compaction.evaluation.values import Report, read_report
from mnesis_core.errors import EvaluationNotFound
from mnesis_core.transcripts.reading import UnreadableRecord, load_json

_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
LARGEST_BYTES = 64 * 1024 * 1024
MOST_LISTED = 20


def new_report_id(at: datetime) -> str:
    """Return an id that sorts by time."""
    return f"{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def keep_report(report: Report) -> None:
    write_report(report, folder() / f"{report.id}.json")


def write_report(report: Report, path: Path) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(report.as_dict(), separators=(",", ":")))
    unfinished.replace(path)


def load_report(report_id: str) -> Report:
    """:raises EvaluationNotFound: there is none, or it cannot be read."""
    if not _ID.fullmatch(report_id):
        raise EvaluationNotFound()
    path = folder() / f"{report_id}.json"
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise EvaluationNotFound(gettext_noop("This report is too large to be shown."))
        return read_report(load_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise EvaluationNotFound() from None
    except (OSError, ValueError, UnreadableRecord) as error:
        raise EvaluationNotFound(
            gettext_noop("The file of this report cannot be read: %(reason)s."), {"reason": str(error)}
        ) from error


def heard_of(report_id: str) -> float:
    """Return when a report was last written, in seconds since 1970; 0 if there is none."""
    with suppress(FileNotFoundError):
        return (folder() / f"{report_id}.json").stat().st_mtime
    return 0.0


def list_reports() -> Iterator[Report]:
    """Yield the newest reports, the newest first; files that cannot be read are left out."""
    ids = sorted((path.stem for path in folder().glob("*.json") if _ID.fullmatch(path.stem)), reverse=True)
    for report_id in ids[:MOST_LISTED]:
        try:
            yield load_report(report_id)
        except EvaluationNotFound:
            continue


def folder() -> Path:
    place = Path(settings.DATA_DIR) / "evaluations"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place

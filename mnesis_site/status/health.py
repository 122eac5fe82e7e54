"""The health of the site: queue and workers, what stands still, guards, database, storage, rate limits.

Each check reads a bounded number of rows, whatever the site holds. Results are cached for some seconds, so many open
pages cost no more than one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.files.storage import FileSystemStorage, storages
from django.db import DatabaseError, connection
from django.utils import timezone
from django_q.models import Failure, OrmQ
from django_q.status import Stat

from agents_app.queries import forgotten_runs, run_states
from audit_app.inspector.health import Check, State
from audit_app.queries import EVERYTHING, count_verifications, find_verification
from compaction_app.queries import longest_wait, stale_runs
from mnesis_core.context.fitting import make_budget
from mnesis_core.text import excerpt
from mnesis_core.values import first_id
from mnesis_site.status.readiness import look_at_storage, look_at_workers, missing_parts
from sessions_app.conf import get_spec_to_read, site_config
from sessions_app.database.commitments import time_in_sql
from sessions_app.database.fast_sql import fetch
from sessions_app.pages.markdown import format_counted, format_duration, format_size
from sessions_app.pages.permissions import address_of
from sessions_app.record.turn_queries import expired_turns

KEPT_SECONDS = 5
DAY_SECONDS = 86_400
# The newest calls, among which sessions over their window are looked for.
CALLS = 1_000
# The newest parts, among which sessions with an index behind are looked for.
PARTS = 200
SHOWN = 20
LAG_SECONDS, LONG_LAG_SECONDS = 30, 300
# A disk with less free space is reported.
SMALL_BYTES, SMALL_SHARE = 2_000_000_000, 0.05
PARTS_OF_SITE = {
    "database": "Database",
    "migrations": "Migrations",
    "guards": "Guards of the record",
    "index": "Search index",
    "redis": "Redis",
    "worker": "Worker",
    "storage": "Storage",
}
_NEWEST_CALLS = (
    "SELECT session_id, model, tokens_input, estimated_tokens FROM model_calls WHERE purpose = 'turn'"
    " ORDER BY id DESC LIMIT %s"
)
_BEHIND = """
    SELECT spoken.session_id, spoken.seq, COALESCE((
        SELECT MAX(newest.last_seq) FROM (
            SELECT e.last_seq FROM search_entries e
            WHERE e.session_id = spoken.session_id AND e.kind IN ('messages', 'tools') ORDER BY e.id DESC LIMIT 50
        ) AS newest), 0)
    FROM (
        SELECT m.session_id, MAX(m.seq) AS seq FROM (
            SELECT message_id FROM message_parts WHERE part_type = 'text' AND content <> '' ORDER BY id DESC LIMIT %s
        ) AS parts
        JOIN messages m ON m.id = parts.message_id JOIN sessions s ON s.id = m.session_id
        WHERE s.deleted_at IS NULL GROUP BY m.session_id
    ) AS spoken"""
_BRAKES = "SELECT model, {until}, ceiling FROM operator_brakes ORDER BY model LIMIT 50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    checks: list[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteHealth:
    at: datetime
    sections: list[Section]
    problems: int
    looks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Failures of the last day; ``newest`` is a session's id, or empty."""

    count: int
    newest: str


def site_health() -> SiteHealth:
    """Return the health of the site, at most ``KEPT_SECONDS`` old."""
    found: SiteHealth | None = cache.get("site-health")
    if found is None:
        found = _check_site(timezone.now())
        cache.set("site-health", found, KEPT_SECONDS)
    return found


def forget_health() -> None:
    cache.delete("site-health")


def _check_site(now: datetime) -> SiteHealth:
    try:
        sections = [
            Section(title="Ready to serve", checks=list(_ready())),
            Section(title="Queue and workers", checks=[*_workers(), *_queue(now)]),
            Section(title="Stuck or failed", checks=[_turns(now), _compactions(now), _operators(now)]),
            Section(title="Sessions", checks=[*_windows(), *_index(), *_proofs()]),
            Section(title="Providers", checks=list(_brakes(now))),
            Section(title="Room", checks=[_database(), *_disks()]),
        ]
    except DatabaseError:
        to_do = "The server's log says why."
        away = Check(name="Database", state=State.PROBLEM, words="It does not answer.", to_do=to_do)
        sections = [Section(title="Ready to serve", checks=[away])]
    states = [check.state for section in sections for check in section.checks]
    return SiteHealth(at=now, sections=sections, problems=states.count(State.PROBLEM), looks=states.count(State.LOOK))


def _ready() -> Iterator[Check]:
    missing = missing_parts() | look_at_workers().degraded | look_at_storage().degraded
    for part, name in PARTS_OF_SITE.items():
        for sentence in missing.get(part, [])[:SHOWN]:
            to_do = "Run 'manage.py migrate' as the database's owner." if part in ("migrations", "guards") else ""
            yield Check(name=name, state=State.PROBLEM, words=excerpt(sentence, 400), to_do=to_do)
        is_there = part != "redis" or settings.REDIS_URL
        if is_there and part not in missing and "database" not in missing:
            yield Check(name=name, state=State.GOOD, words="As it should be.")


def _workers() -> Iterator[Check]:
    clusters = Stat.get_all()
    for stat in clusters[:SHOWN]:
        up = format_duration(stat.uptime())
        words = f"{len(stat.workers)} on {excerpt(stat.host, 60)}, up for {up}; the cluster says “{stat.status}”."
        reborn = f" {stat.reincarnations} workers took the place of others." if stat.reincarnations else ""
        yield Check(name="Workers", state=State.GOOD, words=words + reborn)
    if not clusters:
        to_do = "'manage.py up' starts one; 'manage.py qcluster' is one alone."
        yield Check(name="Workers", state=State.PROBLEM, words="None says that it lives.", to_do=to_do)


def _queue(now: datetime) -> Iterator[Check]:
    waiting = OrmQ.objects.filter(lock__lte=now)
    oldest = waiting.order_by("lock").values_list("lock", flat=True).first()
    lag = (now - oldest).total_seconds() if oldest else 0.0
    count = len(waiting.values_list("id", flat=True)[:1_000])
    words = f"{count:,}{' or more' if count == 1_000 else ''} wait; the oldest for {format_duration(lag)}."
    state = State.PROBLEM if lag > LONG_LAG_SECONDS else State.LOOK if lag > LAG_SECONDS else State.GOOD
    to_do = (
        "More workers ('--workers', MNESIS_WORKERS), or look what keeps those that there are."
        if lag > LAG_SECONDS
        else ""
    )
    yield Check(name="Queue", state=state, words=words if count else "Nothing waits.", to_do=to_do)
    failed = Failure.objects.filter(stopped__gte=now - timedelta(seconds=DAY_SECONDS)).count()
    words = f"Broke off in the last 24 hours: {failed:,}." if failed else "None broke off in the last 24 hours."
    to_do = "The administration lists them under 'Failed tasks', each with its traceback." if failed else ""
    yield Check(name="Jobs", state=State.LOOK if failed else State.GOOD, words=words, to_do=to_do)


def _turns(now: datetime) -> Check:
    running = _count("SELECT COUNT(*) FROM turns WHERE state = 'running'")
    failed = _failed("turns", "turn", ("failed", "interrupted"), now)
    words = f"Running now: {running:,}. Failed or interrupted in the last 24 hours: {failed.count:,}."
    if stuck := [one for one in expired_turns() if one.is_left(now)]:
        return _stuck("Turns", f"{format_counted(len(stuck), 'turn')} without a process. {words}", stuck[0].session_id)
    return _failures("Turns", words, failed)


def _compactions(now: datetime) -> Check:
    waits, failed = longest_wait(now), _failed("compaction_runs", "run", ("failed",), now)
    told = f"The oldest that waits for a worker does so for {format_duration(waits)}. " if waits is not None else ""
    words = f"{told}Failed in the last 24 hours: {failed.count:,}."
    if stuck := stale_runs(now):
        words = f"{format_counted(len(stuck), 'compaction')} without a worker. {words}"
        return _stuck("Compactions", words, stuck[0][0])
    if (waits or 0) > LAG_SECONDS:
        return Check(name="Compactions", state=State.LOOK, words=words, to_do="Look whether workers have room.")
    return _failures("Compactions", words, failed)


def _operators(now: datetime) -> Check:
    states = run_states(forgotten_runs(now)).values()
    forsaken = [state for state in states if state.is_live]
    live = _count("SELECT COUNT(*) FROM operator_runs WHERE state IN ('pending', 'running')")
    failed = _failed("operator_runs", "map", ("failed",), now)
    left = len(states) - len(forsaken)
    words = f"Running now: {live:,}. Runs whose input could not be read in the last 24 hours: {failed.count:,}."
    words += f" Stopped with items that their worker left: {left:,}." if left else ""
    if forsaken:
        again = "Other workers take their items up within seconds. If they stay, no worker runs."
        told = f"{format_counted(len(forsaken), 'run')} with items whose worker is silent. {words}"
        return Check(name="Runs", state=State.PROBLEM, words=told, to_do=again)
    return _failures("Runs", words, failed)


def _failures(name: str, words: str, failed: Failed) -> Check:
    if not failed.count:
        return Check(name=name, state=State.GOOD, words=words)
    address = address_of("inspect-health", failed.newest)
    return Check(name=name, state=State.NOTE, words=words, address=address, label="The newest")


def _stuck(name: str, words: str, session_id: str) -> Check:
    return Check(
        name=name,
        state=State.PROBLEM,
        words=words,
        to_do="They are taken up within seconds by any web or worker process. If they stay, none runs.",
        address=address_of("inspect-health", session_id),
        label="The first",
    )


def _windows() -> Iterator[Check]:
    newest: dict[str, tuple[str, int]] = {}
    for session_id, model, reported, estimated in fetch(_NEWEST_CALLS, [CALLS]):
        newest.setdefault(session_id, (model, max(reported or 0, estimated or 0)))
    config = site_config()
    budgets = {model: make_budget(get_spec_to_read(model), config) for model, _ in newest.values()}
    over = [(id, model, used) for id, (model, used) in newest.items() if used > budgets[model].usable]
    if not over:
        words = f"None of those that asked a model last ({len(newest):,})." if newest else "None asked a model so far."
        yield Check(name="Over their window", state=State.GOOD, words=words)
    for id, model, used in over[:SHOWN]:
        words = f"Its newest prompt had {used:,} tokens; {excerpt(model, 60)} leaves {budgets[model].usable:,}."
        to_do = "It is compacted before its next call; its page says what stands in the way."
        address = address_of("inspect-health", id)
        yield Check(name="Over its window", state=State.LOOK, words=words, to_do=to_do, address=address, label=id)


def _index() -> Iterator[Check]:
    behind = [(id, seq, indexed) for id, seq, indexed in fetch(_BEHIND, [PARTS]) if indexed < seq]
    if not behind:
        yield Check(name="Search index", state=State.GOOD, words="Up to the newest words of every active session.")
    for id, seq, indexed in behind[:SHOWN]:
        yield Check(
            name="Search index",
            state=State.PROBLEM,
            words=f"It ends at message #{indexed:,} of a session whose newest words are in #{seq:,}.",
            to_do="Run 'manage.py rebuild_search'. Nothing is lost: the index is made from the record.",
            address=address_of("inspect-health", id),
            label=id,
        )


def _proofs() -> Iterator[Check]:
    yield from _proof_of_everything()
    counts = count_verifications()
    words = f"Sessions verified from their pages: {counts.done:,}; waiting or running: {counts.live:,}."
    yield Check(name="Proof", state=State.NOTE, words=words)
    for id in counts.with_problems:
        yield Check(
            name="Proof",
            state=State.PROBLEM,
            words="A session's record is not as it was written.",
            to_do="Look what was changed, and who could have.",
            address=address_of("inspect-ledger", id),
            label=id,
        )


def _proof_of_everything() -> Iterator[Check]:
    record = find_verification(EVERYTHING)
    if record is not None and record.is_live:
        words = "A worker verifies the whole database." if record.state == "running" else "It waits for a worker."
        yield Check(name="Whole database", state=State.NOTE, words=words)
    found = record.found if record else None
    if found is None:
        yield Check(name="Whole database", state=State.NOTE, words="Nobody has verified it from this page.")
        return
    took = f"{found.at:%-d %b %Y, %H:%M} UTC, {found.entries:,} entries"
    if not found.problem_count:
        yield Check(name="Whole database", state=State.GOOD, words=f"Verified {took}; nothing differed.")
        return
    words = f"Problems that its last verification found ({took}): {found.problem_count:,}."
    to_do = "'manage.py verify --all' names all of them. Look what was changed, and who could have."
    yield Check(name="Whole database", state=State.PROBLEM, words=words, to_do=to_do)
    for session, (_, kind, detail) in list(zip(found.sessions, found.problems, strict=True))[:SHOWN]:
        words = excerpt(f"{session} {kind}: {detail}".lstrip(), 400)
        yield Check(name="Whole database", state=State.PROBLEM, words=words)


def _brakes(now: datetime) -> Iterator[Check]:
    rows = fetch(_BRAKES.format(until=time_in_sql("until", connection.vendor)))
    if not rows:
        yield Check(name="Brakes", state=State.GOOD, words="No model has asked operators to slow down.")
    for model, until, ceiling in rows:
        left = (datetime.fromisoformat(until).replace(tzinfo=UTC) - now).total_seconds() if until else 0.0
        most = f"{ceiling:,} calls at a time" if ceiling is not None else "as many calls as configured"
        words = f"Nobody asks it for another {format_duration(left)}; then {most}." if left > 0 else f"Up to {most}."
        yield Check(name=excerpt(model, 60), state=State.LOOK if left > 0 else State.NOTE, words=words)


def _database() -> Check:
    if connection.vendor == "sqlite":
        [(pages,)], [(size,)] = fetch("PRAGMA page_count"), fetch("PRAGMA page_size")
        return Check(name="Database", state=State.NOTE, words=f"SQLite, {format_size(pages * size)}.")
    [(bytes,)] = fetch("SELECT pg_database_size(current_database())")
    return Check(name="Database", state=State.NOTE, words=f"PostgreSQL, {format_size(bytes)}.")


def _disks() -> Iterator[Check]:
    yield _disk("Data directory", settings.DATA_DIR)
    files = storages["files"]
    if isinstance(files, FileSystemStorage):
        yield _disk("Files", Path(files.location))
    else:
        yield Check(name="Files", state=State.NOTE, words="In a storage elsewhere.")


def _disk(name: str, path: Path) -> Check:
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    usage = shutil.disk_usage(there)
    words = f"{format_size(usage.free)} of {format_size(usage.total)} free."
    is_small = usage.free < SMALL_BYTES or usage.free < usage.total * SMALL_SHARE
    to_do = (
        "Make room: a full disk keeps everybody from writing. Nothing that was acknowledged is lost."
        if is_small
        else ""
    )
    return Check(name=name, state=State.PROBLEM if is_small else State.GOOD, words=words, to_do=to_do)


def _failed(table: str, prefix: str, states: tuple[str, ...], now: datetime) -> Failed:
    since = first_id(prefix, now.timestamp() - DAY_SECONDS)
    # Rows begun in the last day: ids grow with time, and are the table's key.
    among = ", ".join(["%s"] * len(states))
    where = f"FROM {table} WHERE id >= %s AND state IN ({among})"
    newest = fetch(f"SELECT session_id {where} ORDER BY id DESC LIMIT 1", [since, *states])
    count = _count(f"SELECT COUNT(*) {where}", since, *states) if newest else 0
    return Failed(count=count, newest=newest[0][0] if newest else "")


def _count(sql: str, *values: Any) -> int:
    [(count,)] = fetch(sql, values)
    return int(count)

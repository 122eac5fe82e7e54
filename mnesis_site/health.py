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
from audit_app.health import Check, State
from audit_app.store import EVERYTHING, count_verifications, find_verification
from compaction_app.context.fidelity import load_alarms
from compaction_app.queries import longest_wait, stale_runs
from mnesis_core.context.fitting import make_budget
from mnesis_core.errors import ModelNotFoundError
from mnesis_core.records import first_id
from mnesis_core.text import excerpt
from mnesis_site.readiness import look_at_storage, look_at_workers, missing_parts
from sessions_app.conf import embedding_spec, get_spec_to_read, rerank_spec, site_config
from sessions_app.database.tables import fetch, time_in_sql
from sessions_app.llm.limits import has_used_up
from sessions_app.pages.markdown import format_counted, format_duration, format_size
from sessions_app.pages.permissions import address_of
from sessions_app.record.turn_queries import expired_turns
from sessions_app.search.vector_store import sessions_behind

KEPT_SECONDS = 5
# Another one whenever the fields of ``SiteHealth`` change: old processes may share the cache.
CACHE_KEY = "site-health-2"
DAY_SECONDS = 86_400
CALLS = 1_000  # the newest, among which sessions over their window are looked for
PARTS = 200  # the newest, among which sessions with an index behind are looked for
SHOWN = 20
MEASURED = 2_000  # summaries of the newest sessions, among which those that keep too little are looked for
MOST_BEHIND = 1_000  # sessions without vectors that are counted
MOST_OWNERS = 50  # of these, of whom the limits are looked at
LAG_SECONDS, LONG_LAG_SECONDS = 30, 300
SMALL_BYTES, SMALL_SHARE = 2_000_000_000, 0.05  # a disk with less free space is reported
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
class SiteHealth:
    at: datetime
    sections: dict[str, list[Check]]  # by title
    problems: int
    looks: int


def site_health() -> SiteHealth:
    """Return the health of the site, at most ``KEPT_SECONDS`` old."""
    found: SiteHealth | None = cache.get(CACHE_KEY)
    if found is not None:
        return found
    now = timezone.now()
    try:
        sections = {
            "Ready to serve": list(_ready()),
            "Queue and workers": list(_queue(now)),
            "Stuck or failed": [_turns(now), _compactions(now), _operators(now)],
            "Sessions": [*_windows(), *_fidelity(), *_index(), *_vectors(), *_reranker(), *_proofs()],
            "Providers": list(_brakes(now)),
            "Storage": list(_storage()),
        }
    except DatabaseError:
        away = Check(
            "Database", State.PROBLEM, "The database does not respond.", "See the server's log for the reason."
        )
        sections = {"Ready to serve": [away]}
    states = [check.state for checks in sections.values() for check in checks]
    found = SiteHealth(at=now, sections=sections, problems=states.count(State.PROBLEM), looks=states.count(State.LOOK))
    cache.set(CACHE_KEY, found, KEPT_SECONDS)
    return found


def forget_health() -> None:
    cache.delete(CACHE_KEY)


def _ready() -> Iterator[Check]:
    missing = missing_parts() | look_at_workers().degraded | look_at_storage().degraded
    for part, name in PARTS_OF_SITE.items():
        for sentence in missing.get(part, [])[:SHOWN]:
            to_do = "Run 'manage.py migrate' as the database's owner." if part in ("migrations", "guards") else ""
            yield Check(name, State.PROBLEM, excerpt(sentence, 400), to_do)
        is_there = part != "redis" or settings.REDIS_URL
        if is_there and part not in missing and "database" not in missing:
            yield Check(name, State.GOOD, "OK.")


def _queue(now: datetime) -> Iterator[Check]:
    clusters = Stat.get_all()
    for stat in clusters[:SHOWN]:
        up = format_duration(stat.uptime())
        words = f"{len(stat.workers)} on {excerpt(stat.host, 60)}, up for {up}; the cluster reports “{stat.status}”."
        reborn = f" {stat.reincarnations} workers were replaced." if stat.reincarnations else ""
        yield Check("Workers", State.GOOD, words + reborn)
    if not clusters:
        to_do = "Start one with 'manage.py up' (with the web server) or 'manage.py qcluster' (alone)."
        yield Check("Workers", State.PROBLEM, "No worker is running.", to_do)

    waiting = OrmQ.objects.filter(lock__lte=now)
    oldest = waiting.order_by("lock").values_list("lock", flat=True).first()
    lag = (now - oldest).total_seconds() if oldest else 0.0
    count = len(waiting.values_list("id", flat=True)[:1_000])
    words = f"{count:,}{' or more' if count == 1_000 else ''} waiting, the oldest for {format_duration(lag)}."
    state = State.PROBLEM if lag > LONG_LAG_SECONDS else State.LOOK if lag > LAG_SECONDS else State.GOOD
    to_do = "Start more workers ('--workers', MNESIS_WORKERS), or find out what keeps the existing ones busy."
    yield Check("Queue", state, words if count else "The queue is empty.", to_do if lag > LAG_SECONDS else "")

    failed = Failure.objects.filter(stopped__gte=now - timedelta(seconds=DAY_SECONDS)).count()
    if failed:
        to_do = "The administration lists them under 'Failed tasks', each with its traceback."
        yield Check("Jobs", State.LOOK, f"Failed in the last 24 hours: {failed:,}.", to_do)
    else:
        yield Check("Jobs", State.GOOD, "No jobs failed in the last 24 hours.")


def _turns(now: datetime) -> Check:
    running = _count("SELECT COUNT(*) FROM turns WHERE state = 'running'")
    failed, newest = _failed("turns", "turn", ("failed", "interrupted"), now)
    words = f"Running now: {running:,}. Failed or interrupted in the last 24 hours: {failed:,}."
    if stuck := [one for one in expired_turns() if one.is_left(now)]:
        return _stuck("Turns", f"{format_counted(len(stuck), 'turn')} without a process. {words}", stuck[0].session_id)
    return _failures("Turns", words, newest)


def _compactions(now: datetime) -> Check:
    waits, (failed, newest) = longest_wait(now), _failed("compaction_runs", "run", ("failed",), now)
    told = f"The oldest in the queue has waited for {format_duration(waits)}. " if waits is not None else ""
    words = f"{told}Failed in the last 24 hours: {failed:,}."
    if stuck := stale_runs(now):
        words = f"{format_counted(len(stuck), 'compaction')} without a worker. {words}"
        return _stuck("Compactions", words, stuck[0][0])
    if (waits or 0) > LAG_SECONDS:
        return Check("Compactions", State.LOOK, words, "Check whether the workers keep up.")
    return _failures("Compactions", words, newest)


def _operators(now: datetime) -> Check:
    states = run_states(forgotten_runs(now)).values()
    forsaken = [state for state in states if state.is_live]
    live = _count("SELECT COUNT(*) FROM operator_runs WHERE state IN ('pending', 'running')")
    failed, newest = _failed("operator_runs", "map", ("failed",), now)
    left = len(states) - len(forsaken)
    words = f"Running now: {live:,}. Runs whose input could not be read in the last 24 hours: {failed:,}."
    words += f" Stopped with items that their worker left: {left:,}." if left else ""
    if forsaken:
        again = "Other workers take their items up within seconds. If they stay, no worker is running."
        words = f"{format_counted(len(forsaken), 'run')} with items whose worker is silent. {words}"
        return Check("Runs", State.PROBLEM, words, again)
    return _failures("Runs", words, newest)


def _failures(name: str, words: str, newest: str) -> Check:
    if not newest:
        return Check(name, State.GOOD, words)
    return Check(name, State.NOTE, words, address=address_of("inspect-health", newest), label="Show the newest")


def _stuck(name: str, words: str, session_id: str) -> Check:
    to_do = "Any web or worker process takes them up within seconds. If they stay, none is running."
    return Check(name, State.PROBLEM, words, to_do, address_of("inspect-health", session_id), "The first")


def _failed(table: str, prefix: str, states: tuple[str, ...], now: datetime) -> tuple[int, str]:
    """Return the number of failures of the last day, and the session of the newest or an empty string."""
    since = first_id(prefix, now.timestamp() - DAY_SECONDS)
    # Rows begun in the last day: ids grow with time, and are the table's key.
    among = ", ".join(["%s"] * len(states))
    where = f"FROM {table} WHERE id >= %s AND state IN ({among})"
    newest = fetch(f"SELECT session_id {where} ORDER BY id DESC LIMIT 1", [since, *states])
    return (_count(f"SELECT COUNT(*) {where}", since, *states), newest[0][0]) if newest else (0, "")


def _count(sql: str, *values: Any) -> int:
    [(count,)] = fetch(sql, values)
    return int(count)


def _windows() -> Iterator[Check]:
    newest: dict[str, tuple[str, int]] = {}
    for session_id, model, reported, estimated in fetch(_NEWEST_CALLS, [CALLS]):
        newest.setdefault(session_id, (model, max(reported or 0, estimated or 0)))
    config = site_config()
    budgets = {model: make_budget(get_spec_to_read(model), config) for model, _ in newest.values()}
    over = [(id, model, used) for id, (model, used) in newest.items() if used > budgets[model].usable]
    if not over:
        words = (
            f"None of the last {len(newest):,} that called a model." if newest else "No session has called a model yet."
        )
        yield Check("Over their window", State.GOOD, words)
    for id, model, used in over[:SHOWN]:
        words = f"Its newest prompt had {used:,} tokens; {excerpt(model, 60)} leaves {budgets[model].usable:,}."
        to_do = "It is compacted before its next call. Its health page shows any obstacles."
        yield Check("Over its window", State.LOOK, words, to_do, address_of("inspect-health", id), id)


def _fidelity() -> Iterator[Check]:
    measured, alarms = load_alarms(most=MEASURED)
    if not measured:
        yield Check("Fidelity", State.NOTE, "No summary has been measured yet. A worker measures each new one.")
        return
    among = f"of the {measured:,} that were measured{' last' if measured == MEASURED else ''}"
    if not alarms:
        yield Check("Fidelity", State.GOOD, f"No summary {among} keeps too little.")
        return
    where = f" in {format_counted(len(alarms), 'session')}"
    told = f"{_keeping(sum(alarms.values()), where)} too little, {among}."
    to_do = "Nothing is lost in the record. The health page of each session shows what is missing and what to do."
    yield Check("Fidelity", State.LOOK, told, to_do)
    for id in sorted(alarms, key=lambda id: -alarms[id])[:SHOWN]:
        address = address_of("inspect-health", id)
        yield Check("Fidelity", State.LOOK, f"{_keeping(alarms[id])} too little.", address=address, label=id)


def _keeping(summaries: int, where: str = "") -> str:
    """Return the beginning of a sentence, such as ``2 summaries keep``."""
    return f"1 summary{where} keeps" if summaries == 1 else f"{summaries:,} summaries{where} keep"


def _index() -> Iterator[Check]:
    behind = [(id, seq, indexed) for id, seq, indexed in fetch(_BEHIND, [PARTS]) if indexed < seq]
    if not behind:
        yield Check("Search index", State.GOOD, "Up to date for every active session.")
    for id, seq, indexed in behind[:SHOWN]:
        words = f"It ends at message #{indexed:,} of a session whose newest words are in #{seq:,}."
        to_do = "Run 'manage.py rebuild_search'. Nothing is lost: the index is made from the record."
        yield Check("Search index", State.PROBLEM, words, to_do, address_of("inspect-health", id), id)


def _vectors() -> Iterator[Check]:
    if not (alias := site_config().search.embedding_model):
        return
    try:
        spec = embedding_spec()
    except ModelNotFoundError:
        words = f"No model is called “{excerpt(alias, 60)}”, so search uses words only."
        yield Check("Search by meaning", State.LOOK, words, "Add it with 'manage.py model add', or set another one.")
        return
    owners = [owner_id for _, owner_id in sessions_behind(spec.litellm_model, most=MOST_BEHIND)] if spec else []
    behind, more = len(owners), " or more" if len(owners) == MOST_BEHIND else ""
    words = f"Sessions with texts that the model has yet to read: {behind:,}{more}; search uses only words for these."
    used_up = {owner_id for owner_id in [*dict.fromkeys(owners)][:MOST_OWNERS] if has_used_up(owner_id)}
    if waiting := sum(owner_id in used_up for owner_id in owners):
        words += f" {waiting:,} of them are waiting, because their owners have reached a spending limit."
    good = "The embedding model has read every text."
    to_do = (
        "Workers are reading them. If the number does not fall, see the server's log for the reason." if behind else ""
    )
    yield Check("Search by meaning", State.NOTE if behind else State.GOOD, words if behind else good, to_do)


def _reranker() -> Iterator[Check]:
    if not (alias := site_config().search.rerank_model):
        return
    try:
        rerank_spec()
    except ModelNotFoundError:
        words = f"No model is called “{excerpt(alias, 60)}”, so search works without a reranker."
        yield Check("Reranker", State.LOOK, words, "Add it with 'manage.py model add', or set another one.")
        return
    yield Check("Reranker", State.GOOD, f"“{excerpt(alias, 60)}” reads what a search finds beside the question.")


def _proofs() -> Iterator[Check]:
    record = find_verification(EVERYTHING)
    if record is not None and record.is_live:
        words = "A worker is verifying the whole database." if record.state == "running" else "It waits for a worker."
        yield Check("Whole database", State.NOTE, words)
    found = record.found if record else None
    took = f"{found.at:%-d %b %Y, %H:%M} UTC, {found.entries:,} entries" if found else ""
    if found is None:
        yield Check("Whole database", State.NOTE, "Not verified from this page yet.")
    elif not found.problem_count:
        yield Check("Whole database", State.GOOD, f"Verified {took}. No differences found.")
    else:
        words = f"Problems found by the last verification ({took}): {found.problem_count:,}."
        to_do = "Run 'manage.py verify --all' to list all of them. Find out what was changed, and by whom."
        yield Check("Whole database", State.PROBLEM, words, to_do)
        for session, (_, kind, detail) in list(zip(found.sessions, found.problems, strict=True))[:SHOWN]:
            yield Check("Whole database", State.PROBLEM, excerpt(f"{session} {kind}: {detail}".lstrip(), 400))

    done, live, with_problems = count_verifications()
    words = f"Sessions verified from their pages: {done:,}; waiting or running: {live:,}."
    yield Check("Proof", State.NOTE, words)
    for id in with_problems:
        to_do = "Find out what was changed, and by whom."
        words = "A session's record is not as it was written."
        yield Check("Proof", State.PROBLEM, words, to_do, address_of("inspect-ledger", id), id)


def _brakes(now: datetime) -> Iterator[Check]:
    rows = fetch(_BRAKES.format(until=time_in_sql("until", connection.vendor)))
    if not rows:
        yield Check("Brakes", State.GOOD, "No model has asked operators to slow down.")
    for model, until, ceiling in rows:
        left = (datetime.fromisoformat(until).replace(tzinfo=UTC) - now).total_seconds() if until else 0.0
        most = f"{ceiling:,} calls at a time" if ceiling is not None else "as many calls as configured"
        if left > 0:
            words = f"It is not called for another {format_duration(left)}; then {most}."
            yield Check(excerpt(model, 60), State.LOOK, words)
        else:
            yield Check(excerpt(model, 60), State.NOTE, f"Up to {most}.")


def _storage() -> Iterator[Check]:
    if connection.vendor == "sqlite":
        [(pages,)], [(size,)] = fetch("PRAGMA page_count"), fetch("PRAGMA page_size")
        yield Check("Database", State.NOTE, f"SQLite, {format_size(pages * size)}.")
    else:
        [(size,)] = fetch("SELECT pg_database_size(current_database())")
        yield Check("Database", State.NOTE, f"PostgreSQL, {format_size(size)}.")
    yield _disk("Data directory", settings.DATA_DIR)
    files = storages["files"]
    if isinstance(files, FileSystemStorage):
        yield _disk("Files", Path(files.location))
    else:
        yield Check("Files", State.NOTE, "In external storage.")


def _disk(name: str, path: Path) -> Check:
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    usage = shutil.disk_usage(there)
    words = f"{format_size(usage.free)} of {format_size(usage.total)} free."
    if usage.free < SMALL_BYTES or usage.free < usage.total * SMALL_SHARE:
        to_do = "Free some space: on a full disk nothing can be written. Nothing that was acknowledged is lost."
        return Check(name, State.PROBLEM, words, to_do)
    return Check(name, State.GOOD, words)

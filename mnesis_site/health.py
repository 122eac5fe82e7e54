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
from django.utils.translation import get_language, gettext_lazy, ngettext, pgettext
from django.utils.translation import gettext as _
from django_q.models import Failure, OrmQ
from django_q.status import Stat

from agents_app.queries import forgotten_runs, run_states
from audit_app.health import Check, State
from audit_app.store import EVERYTHING, count_verifications, find_verification
from compaction_app.context.fidelity import load_alarms
from compaction_app.queries import longest_wait, stale_runs
from mnesis_core.context.fitting import make_budget
from mnesis_core.errors import ModelNotFoundError
from mnesis_core.providers.credentials import KeyState
from mnesis_core.records import first_id
from mnesis_core.text import excerpt
from mnesis_site.readiness import look_at_storage, look_at_workers, missing_parts
from sessions_app.conf import embedding_spec, get_spec_to_read, rerank_spec, site_config
from sessions_app.database.tables import fetch, time_in_sql
from sessions_app.llm.limits import has_used_up
from sessions_app.llm.model_store import list_stored_keys
from sessions_app.pages.formats import format_counted, format_duration, format_moment, format_number, format_size
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
MOST_WAITING = 1_000  # jobs that are counted
MEASURED = 2_000  # summaries of the newest sessions, among which those that keep too little are looked for
MOST_BEHIND = 1_000  # sessions without vectors that are counted
MOST_OWNERS = 50  # of these, of whom the limits are looked at
LAG_SECONDS, LONG_LAG_SECONDS = 30, 300
SMALL_BYTES, SMALL_SHARE = 2_000_000_000, 0.05  # a disk with less free space is reported
PARTS_OF_SITE = {
    "database": gettext_lazy("Database"),
    "migrations": gettext_lazy("Migrations"),
    "guards": gettext_lazy("Guards of the record"),
    "index": gettext_lazy("Search index"),
    "redis": "Redis",
    "worker": gettext_lazy("Worker"),
    "storage": gettext_lazy("Storage"),
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
    """Return the health of the site in the language of the page, at most ``KEPT_SECONDS`` old."""
    key = f"{CACHE_KEY}-{get_language()}"
    found: SiteHealth | None = cache.get(key)
    if found is not None:
        return found
    now = timezone.now()
    try:
        sections = {
            _("Ready to serve"): list(_ready()),
            _("Queue and workers"): [*_workers(), *_queue(now)],
            _("Stuck or failed"): [_turns(now), _compactions(now), _operators(now)],
            _("Sessions"): [*_windows(), *_fidelity(), *_index(), *_vectors(), *_reranker(), *_proofs()],
            _("Providers"): [*_brakes(now), *_stored_keys()],
            _("Storage"): list(_storage()),
        }
    except DatabaseError:
        words, to_do = _("The database does not respond."), _("See the server's log for the reason.")
        sections = {_("Ready to serve"): [Check(_("Database"), State.PROBLEM, words, to_do)]}
    states = [check.state for checks in sections.values() for check in checks]
    found = SiteHealth(at=now, sections=sections, problems=states.count(State.PROBLEM), looks=states.count(State.LOOK))
    cache.set(key, found, KEPT_SECONDS)
    return found


def forget_health() -> None:
    cache.delete_many([f"{CACHE_KEY}-{code}" for code, _name in settings.LANGUAGES])


def _ready() -> Iterator[Check]:
    missing = missing_parts() | look_at_workers().degraded | look_at_storage().degraded
    for part, name in PARTS_OF_SITE.items():
        for sentence in missing.get(part, [])[:SHOWN]:
            is_migrated = part in ("migrations", "guards")
            to_do = _("Run 'manage.py migrate' as the database's owner.") if is_migrated else ""
            yield Check(str(name), State.PROBLEM, excerpt(sentence, 400), to_do)
        is_there = part != "redis" or settings.REDIS_URL
        if is_there and part not in missing and "database" not in missing:
            yield Check(str(name), State.GOOD, _("OK."))


def _workers() -> Iterator[Check]:
    clusters = Stat.get_all()
    for stat in clusters[:SHOWN]:
        words = _("%(count)s on %(host)s, up for %(duration)s; the cluster reports “%(status)s”.") % {
            "count": len(stat.workers),
            "host": excerpt(stat.host, 60),
            "duration": format_duration(stat.uptime()),
            "status": stat.status,
        }
        if stat.reincarnations:
            words += " " + _("%(count)s workers were replaced.") % {"count": stat.reincarnations}
        yield Check(_("Workers"), State.GOOD, words)
    if not clusters:
        to_do = _("Start one with 'manage.py up' (with the web server) or 'manage.py qcluster' (alone).")
        yield Check(_("Workers"), State.PROBLEM, _("No worker is running."), to_do)


def _queue(now: datetime) -> Iterator[Check]:
    waiting = OrmQ.objects.filter(lock__lte=now)
    oldest = waiting.order_by("lock").values_list("lock", flat=True).first()
    lag = (now - oldest).total_seconds() if oldest else 0.0
    count = len(waiting.values_list("id", flat=True)[:MOST_WAITING])
    words = _("%(count)s waiting, the oldest for %(duration)s.")
    if count == MOST_WAITING:
        words = _("%(count)s or more waiting, the oldest for %(duration)s.")
    words %= {"count": format_number(count), "duration": format_duration(lag)}
    state = State.PROBLEM if lag > LONG_LAG_SECONDS else State.LOOK if lag > LAG_SECONDS else State.GOOD
    to_do = _("Start more workers ('--workers', MNESIS_WORKERS), or find out what keeps the existing ones busy.")
    words = words if count else _("The queue is empty.")
    yield Check(pgettext("noun", "Queue"), state, words, to_do if lag > LAG_SECONDS else "")

    failed = Failure.objects.filter(stopped__gte=now - timedelta(seconds=DAY_SECONDS)).count()
    if not failed:
        yield Check(_("Jobs"), State.GOOD, _("No jobs failed in the last 24 hours."))
        return
    to_do = _("The administration lists them under 'Failed tasks', each with its traceback.")
    words = _("Failed in the last 24 hours: %(count)s.") % {"count": format_number(failed)}
    yield Check(_("Jobs"), State.LOOK, words, to_do)


def _turns(now: datetime) -> Check:
    running = _count("SELECT COUNT(*) FROM turns WHERE state = 'running'")
    failed, newest = _failed("turns", "turn", ("failed", "interrupted"), now)
    words = _("Running now: %(running)s. Failed or interrupted in the last 24 hours: %(failed)s.") % {
        "running": format_number(running),
        "failed": format_number(failed),
    }
    if stuck := [one for one in expired_turns() if one.is_left(now)]:
        left = _("%(turns)s without a process.") % {"turns": format_counted(len(stuck), "turn")}
        return _stuck(_("Turns"), f"{left} {words}", stuck[0].session_id)
    return _failures(_("Turns"), words, newest)


def _compactions(now: datetime) -> Check:
    waits, (failed, newest) = longest_wait(now), _failed("compaction_runs", "run", ("failed",), now)
    words = _("Failed in the last 24 hours: %(count)s.") % {"count": format_number(failed)}
    if waits is not None:
        told = _("The oldest in the queue has waited for %(duration)s.") % {"duration": format_duration(waits)}
        words = f"{told} {words}"
    if stuck := stale_runs(now):
        left = _("%(compactions)s without a worker.") % {"compactions": format_counted(len(stuck), "compaction")}
        return _stuck(_("Compactions"), f"{left} {words}", stuck[0][0])
    if (waits or 0) > LAG_SECONDS:
        return Check(_("Compactions"), State.LOOK, words, _("Check whether the workers keep up."))
    return _failures(_("Compactions"), words, newest)


def _operators(now: datetime) -> Check:
    states = run_states(forgotten_runs(now)).values()
    forsaken = [state for state in states if state.is_live]
    live = _count("SELECT COUNT(*) FROM operator_runs WHERE state IN ('pending', 'running')")
    failed, newest = _failed("operator_runs", "map", ("failed",), now)
    left = len(states) - len(forsaken)
    words = _("Running now: %(running)s. Runs whose input could not be read in the last 24 hours: %(failed)s.") % {
        "running": format_number(live),
        "failed": format_number(failed),
    }
    if left:
        words += " " + _("Stopped with items that their worker left: %(count)s.") % {"count": format_number(left)}
    if forsaken:
        again = _("Other workers take their items up within seconds. If they stay, no worker is running.")
        silent = _("%(runs)s with items whose worker is silent.") % {"runs": format_counted(len(forsaken), "run")}
        return Check(_("Runs"), State.PROBLEM, f"{silent} {words}", again)
    return _failures(_("Runs"), words, newest)


def _failures(name: str, words: str, newest: str) -> Check:
    if not newest:
        return Check(name, State.GOOD, words)
    return Check(name, State.NOTE, words, address=address_of("inspect-health", newest), label=_("Show the newest"))


def _stuck(name: str, words: str, session_id: str) -> Check:
    to_do = _("Any web or worker process takes them up within seconds. If they stay, none is running.")
    return Check(name, State.PROBLEM, words, to_do, address_of("inspect-health", session_id), _("The first"))


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
        words = _("No session has called a model yet.")
        if newest:
            words = _("None of the last %(count)s that called a model.") % {"count": format_number(len(newest))}
        yield Check(_("Over their window"), State.GOOD, words)
    for id, model, used in over[:SHOWN]:
        words = _("Its newest prompt had %(tokens)s tokens; %(model)s leaves %(usable)s.") % {
            "tokens": format_number(used),
            "model": excerpt(model, 60),
            "usable": format_number(budgets[model].usable),
        }
        to_do = _("It is compacted before its next call. Its health page shows any obstacles.")
        yield Check(_("Over its window"), State.LOOK, words, to_do, address_of("inspect-health", id), id)


def _fidelity() -> Iterator[Check]:
    measured, alarms = load_alarms(most=MEASURED)
    if not measured:
        words = _("No summary has been measured yet. A worker measures each new one.")
        yield Check(_("Fidelity"), State.NOTE, words)
        return
    are_last, count = measured == MEASURED, {"measured": format_number(measured)}
    if not alarms:
        words = _("No summary of the %(measured)s that were measured keeps too little.")
        if are_last:
            words = _("No summary of the %(measured)s that were measured last keeps too little.")
        yield Check(_("Fidelity"), State.GOOD, words % count)
        return
    summaries, sessions = sum(alarms.values()), format_counted(len(alarms), "session")
    told = ngettext(
        "%(count)s summary in %(sessions)s keeps too little, of the %(measured)s that were measured.",
        "%(count)s summaries in %(sessions)s keep too little, of the %(measured)s that were measured.",
        summaries,
    )
    if are_last:
        told = ngettext(
            "%(count)s summary in %(sessions)s keeps too little, of the %(measured)s that were measured last.",
            "%(count)s summaries in %(sessions)s keep too little, of the %(measured)s that were measured last.",
            summaries,
        )
    told %= count | {"count": format_number(summaries), "sessions": sessions}
    to_do = _("Nothing is lost in the record. The health page of each session shows what is missing and what to do.")
    yield Check(_("Fidelity"), State.LOOK, told, to_do)
    for id in sorted(alarms, key=lambda id: -alarms[id])[:SHOWN]:
        address = address_of("inspect-health", id)
        few = ngettext("%(count)s summary keeps too little.", "%(count)s summaries keep too little.", alarms[id]) % {
            "count": format_number(alarms[id])
        }
        yield Check(_("Fidelity"), State.LOOK, few, address=address, label=id)


def _index() -> Iterator[Check]:
    behind = [(id, seq, indexed) for id, seq, indexed in fetch(_BEHIND, [PARTS]) if indexed < seq]
    if not behind:
        yield Check(_("Search index"), State.GOOD, _("Up to date for every active session."))
    for id, seq, indexed in behind[:SHOWN]:
        shown = {"last": format_number(indexed), "newest": format_number(seq)}
        words = _("It ends at message #%(last)s of a session whose newest words are in #%(newest)s.") % shown
        to_do = _("Run 'manage.py rebuild_search'. Nothing is lost: the index is made from the record.")
        yield Check(_("Search index"), State.PROBLEM, words, to_do, address_of("inspect-health", id), id)


def _vectors() -> Iterator[Check]:
    if not (alias := site_config().search.embedding_model):
        return
    try:
        spec = embedding_spec()
    except ModelNotFoundError:
        words = _("No model is called “%(name)s”, so search uses words only.") % {"name": excerpt(alias, 60)}
        to_do = _("Add it with 'manage.py model add', or set another one.")
        yield Check(_("Search by meaning"), State.LOOK, words, to_do)
        return
    owners = [owner_id for _, owner_id in sessions_behind(spec.litellm_model, most=MOST_BEHIND)] if spec else []
    behind = len(owners)
    words = _("Sessions with texts that the model has yet to read: %(count)s; search uses only words for these.")
    if behind == MOST_BEHIND:
        words = _(
            "Sessions with texts that the model has yet to read: %(count)s or more; search uses only words for these."
        )
    words %= {"count": format_number(behind)}
    used_up = {owner_id for owner_id in [*dict.fromkeys(owners)][:MOST_OWNERS] if has_used_up(owner_id)}
    if waiting := sum(owner_id in used_up for owner_id in owners):
        text = _("%(count)s of them are waiting, because their owners have reached a spending limit.")
        words = f"{words} {text % {'count': format_number(waiting)}}"
    good = _("The embedding model has read every text.")
    to_do = _("Workers are reading them. If the number does not fall, see the server's log for the reason.")
    to_do = to_do if behind else ""
    yield Check(_("Search by meaning"), State.NOTE if behind else State.GOOD, words if behind else good, to_do)


def _reranker() -> Iterator[Check]:
    if not (alias := site_config().search.rerank_model):
        return
    try:
        rerank_spec()
    except ModelNotFoundError:
        words = _("No model is called “%(name)s”, so search works without a reranker.") % {"name": excerpt(alias, 60)}
        to_do = _("Add it with 'manage.py model add', or set another one.")
        yield Check(_("Reranker"), State.LOOK, words, to_do)
        return
    words = _("“%(name)s” reads what a search finds beside the question.") % {"name": excerpt(alias, 60)}
    yield Check(_("Reranker"), State.GOOD, words)


def _proofs() -> Iterator[Check]:
    record = find_verification(EVERYTHING)
    if record is not None and record.is_live:
        is_running = record.state == "running"
        words = _("A worker is verifying the whole database.") if is_running else _("It waits for a worker.")
        yield Check(_("Whole database"), State.NOTE, words)
    found = record.found if record else None
    took = {"time": format_moment(found.at), "entries": format_number(found.entries)} if found else {}
    if found is None:
        yield Check(_("Whole database"), State.NOTE, _("Not verified from this page yet."))
    elif not found.problem_count:
        words = _("Verified %(time)s UTC, %(entries)s entries. No differences found.") % took
        yield Check(_("Whole database"), State.GOOD, words)
    else:
        words = _("Problems found by the last verification (%(time)s UTC, %(entries)s entries): %(count)s.")
        words %= took | {"count": format_number(found.problem_count)}
        to_do = _("Run 'manage.py verify --all' to list all of them. Find out what was changed, and by whom.")
        yield Check(_("Whole database"), State.PROBLEM, words, to_do)
        for session, (_seq, kind, detail) in list(zip(found.sessions, found.problems, strict=True))[:SHOWN]:
            yield Check(_("Whole database"), State.PROBLEM, excerpt(f"{session} {kind}: {detail}".lstrip(), 400))

    done, live, with_problems = count_verifications()
    numbers = {"verified": format_number(done), "live": format_number(live)}
    words = _("Sessions verified from their pages: %(verified)s; waiting or running: %(live)s.") % numbers
    yield Check(_("Proof"), State.NOTE, words)
    for id in with_problems:
        to_do = _("Find out what was changed, and by whom.")
        words = _("A session's record is not as it was written.")
        yield Check(_("Proof"), State.PROBLEM, words, to_do, address_of("inspect-ledger", id), id)


def _brakes(now: datetime) -> Iterator[Check]:
    rows = fetch(_BRAKES.format(until=time_in_sql("until", connection.vendor)))
    if not rows:
        yield Check(_("Brakes"), State.GOOD, _("No model has asked operators to slow down."))
    for model, until, ceiling in rows:
        left = (datetime.fromisoformat(until).replace(tzinfo=UTC) - now).total_seconds() if until else 0.0
        shown = {"duration": format_duration(left), "count": format_number(ceiling)}
        if left > 0:
            words = _("It is not called for another %(duration)s; then as many calls as configured.")
            if ceiling is not None:
                words = _("It is not called for another %(duration)s; then %(count)s calls at a time.")
            yield Check(excerpt(model, 60), State.LOOK, words % shown)
        else:
            words = _("Up to as many calls as configured.")
            if ceiling is not None:
                words = _("Up to %(count)s calls at a time.")
            yield Check(excerpt(model, 60), State.NOTE, words % shown)


def _stored_keys() -> Iterator[Check]:
    keys = list_stored_keys()
    for key in [key for key in keys if key.state is KeyState.UNREADABLE][:SHOWN]:
        words = _("The stored key of this model cannot be read.")
        to_do = _("It was stored for another address, or with another SECRET_KEY. Enter it again on the page Models.")
        yield Check(excerpt(key.alias, 60), State.PROBLEM, words, to_do)
    earlier = sum(key.state is KeyState.EARLIER for key in keys)
    if earlier:
        words = _("Encrypted with an earlier SECRET_KEY: %(count)s.") % {"count": format_number(earlier)}
        yield Check(_("Stored keys"), State.LOOK, words, _("Run 'manage.py reencrypt_keys'."))


def _storage() -> Iterator[Check]:
    if connection.vendor == "sqlite":
        [(pages,)], [(size,)] = fetch("PRAGMA page_count"), fetch("PRAGMA page_size")
        yield Check(_("Database"), State.NOTE, f"SQLite, {format_size(pages * size)}.")
    else:
        [(size,)] = fetch("SELECT pg_database_size(current_database())")
        yield Check(_("Database"), State.NOTE, f"PostgreSQL, {format_size(size)}.")
    yield _disk(_("Data directory"), settings.DATA_DIR)
    files = storages["files"]
    if isinstance(files, FileSystemStorage):
        yield _disk(_("Files"), Path(files.location))
    else:
        yield Check(_("Files"), State.NOTE, _("In external storage."))


def _disk(name: str, path: Path) -> Check:
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    usage = shutil.disk_usage(there)
    sizes = {"free": format_size(usage.free), "total": format_size(usage.total)}
    words = _("%(free)s of %(total)s free.") % sizes
    if usage.free < SMALL_BYTES or usage.free < usage.total * SMALL_SHARE:
        to_do = _("Free some space: on a full disk nothing can be written. Nothing that was acknowledged is lost.")
        return Check(name, State.PROBLEM, words, to_do)
    return Check(name, State.GOOD, words)

"""Import exported sessions as they were: with the same ids, the same ledger and the same head.

A file is read twice: first all of it is checked and nothing written, then each session is one transaction. What the
lines alone cannot show is checked before the commit: every row belongs to this session, none names what belongs to
another account, the rows are what the ledger says, and all of it can be read. The session then belongs to the importer.
Its ledger stays as it was, so its first entry still names the account that it belonged to on its old site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, get_args

from django.apps import apps
from django.db import DatabaseError, connection, models, transaction
from django.db.models.query import QuerySet

from agents_app.queries import count_waiting, list_items, list_runs, live_runs_of, load_attempts
from audit_app.proof.verify import verify_session
from audit_app.tables import batches, insert_rows, row_characters, session_tables
from audit_app.transfer.export import CONTENTS, ContentsTaken, export_session, piece_in
from mnesis_core.errors import DuplicateIDError, InvalidRequest, MnesisError
from mnesis_core.messages import Role
from mnesis_core.transcripts.session_file import End, Header, RowLine, read_sessions, written
from mnesis_core.values import is_id
from sessions_app.record import session_store
from sessions_app.record.context_queries import load_events
from sessions_app.record.message_queries import load_messages
from sessions_app.search import index as search_index

PAGE = 200

Progress = Callable[[str, str, int, int], None]
"""Called with the verb, the session's id, rows done and rows in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    session_id: str
    rows: int
    # False when the very same session was there already.
    imported: bool


def import_sessions(
    read: Callable[[], Iterable[bytes]],
    *,
    owner_id: int,
    progress: Progress = lambda verb, what, done, total: None,
) -> list[ImportedSession]:
    """Import every session of a file; each call of ``read`` gives its lines from the start.

    :raises InvalidRequest: the file is damaged or was not made by an export; nothing of it was written.
    :raises DuplicateIDError: an id is taken by something that is not the same. Sessions before that one in the file are
        stored; repeating the import is safe.
    """
    for item in read_sessions(read()):
        if isinstance(item, RowLine):
            piece_in(item) if item.table == CONTENTS else _row_of(item, owner_id)
    items = read_sessions(read())
    return [_import(item, items, owner_id, progress) for item in items if isinstance(item, Header)]


def _import(header: Header, items: Iterator[Any], owner_id: int, progress: Progress) -> ImportedSession:
    total = sum(header.rows.values())

    def read_rows() -> Iterator[RowLine]:
        for number, item in enumerate(items, 1):
            if isinstance(item, End):
                return
            yield item
            progress("imported", header.session_id, number, total)

    rows = read_rows()
    there: Any = _rows("Session").filter(pk=header.session_id).first()
    if there is None:
        _store(header, rows, owner_id)
    else:
        _compare(header, rows, there, owner_id)
    return ImportedSession(session_id=header.session_id, rows=total, imported=there is None)


def _compare(header: Header, rows: Iterator[RowLine], there: Any, owner_id: int) -> None:
    if there.owner_id != owner_id:
        raise DuplicateIDError(f"There is a session {header.session_id} already.", id=header.session_id)
    ours = export_session(header.session_id)
    same = next(ours) == written(header.as_dict())
    # Both are read to the end; only the last line of our own export is left over.
    for row in rows:
        same = same and next(ours) == written({"table": row.table, "row": row.values})
    if not same:
        raise DuplicateIDError(
            f"There is a session {header.session_id} already, and it is not the same: it has {there.event_seq} ledger "
            f"entries, the file {header.event_seq}.",
            id=header.session_id,
        )


def _store(header: Header, rows: Iterator[RowLine], owner_id: int) -> None:
    contents = ContentsTaken(header.session_id)
    with transaction.atomic():
        for table, group in groupby(rows, key=attrgetter("table")):
            for batch in batches(group, lambda row: row_characters(tuple(row.values.values()))):
                if table == CONTENTS:
                    contents.take(batch)
                    continue
                _refuse_foreign_ids(batch, owner_id)
                _refuse_loose(batch, header.session_id)
                _insert(batch, owner_id)
        contents.finish()
        _refuse_awake(header.session_id)
        _check_stored(header)
        # A deleted session is not searchable.
        if _rows("Session").filter(pk=header.session_id, deleted_at__isnull=True).exists():
            with connection.cursor() as cursor:
                search_index.rebuild_session(cursor, header.session_id)
        session_store.enter_imported(header.session_id)


def _insert(batch: list[RowLine], owner_id: int) -> None:
    table = session_tables()[batch[0].table]
    lines = _lines(batch)
    keys = [row.values.get(table.table.fields[table.table.key].attname) for row in batch]
    if QuerySet(table.model).filter(pk__in=[key for key in keys if key is not None]).exists():
        raise DuplicateIDError(f"{lines}: a row with one of these ids is there already.", line=batch[0].line)
    rows = [_row_of(row, owner_id) for row in batch]
    try:
        with transaction.atomic():
            insert_rows(table.table.name, [*table.fields, *table.account_fields], rows, using="default")
    except (DatabaseError, ValueError) as error:
        raise InvalidRequest(f"{lines} cannot be stored: {error}", line=batch[0].line) from error


def _row_of(row: RowLine, owner_id: int) -> tuple[Any, ...]:
    table = session_tables().get(row.table)
    if table is None:
        raise InvalidRequest(f"Line {row.line}: this site has no table {row.table[:80]!r}.", line=row.line)
    try:
        return table.row_of(row.values, account_id=owner_id)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequest(f"Line {row.line}: {error}.", line=row.line) from error


def _lines(batch: list[RowLine]) -> str:
    return f"Lines {batch[0].line} to {batch[-1].line}"


def _refuse_foreign_ids(batch: list[RowLine], owner_id: int) -> None:
    """:raises InvalidRequest: a row names what belongs to another account."""
    table = session_tables()[batch[0].table]
    # Ids are how rows find each other, so none may lead to another account's rows.
    long = {field.attname for field in table.fields if isinstance(field, models.TextField)}
    named = {id for row in batch for name, value in row.values.items() if name not in long for id in _ids_in(value)}
    for other in session_tables().values():
        if not isinstance(other.model._meta.pk, models.CharField):
            continue
        owner = "owner" if other.path == "pk" else f"{other.path}__owner"
        for chunk in batches(sorted(named), len):
            if QuerySet(other.model).filter(pk__in=chunk).exclude(**{owner: owner_id}).exists():
                raise InvalidRequest(f"{_lines(batch)} name rows that are not yours.", line=batch[0].line)


def _refuse_loose(batch: list[RowLine], session_id: str) -> None:
    """:raises InvalidRequest: a row needs one that is not in its session."""
    tables = {table.model: table for table in session_tables().values()}
    table = session_tables()[batch[0].table]
    # Databases check foreign keys at the commit, too late to name a line, and do not know what a session is.
    for index, model in table.table.foreign_keys:
        if model not in tables:
            continue
        name = table.table.fields[index].attname
        own = {row.values.get("id") for row in batch} if model is table.model else set()
        needed: set[Any] = {row.values.get(name) for row in batch} - {None} - own
        found: QuerySet[Any, Any] = QuerySet(model).filter(pk__in=needed)
        if table.path != "pk":
            found = found.filter(**{tables[model].path: session_id})
        if found.count() < len(needed):
            reason = f"{name} names what is not in this session"
            if table.path == "pk":
                reason = f"its parent {min(needed)} is not here, export and import both"
            raise InvalidRequest(f"{_lines(batch)}: {reason}.", line=batch[0].line)


def _ids_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and is_id(value):
        yield value
    elif isinstance(value, dict):
        yield from (id for item in (*value, *value.values()) for id in _ids_in(item))
    elif isinstance(value, list):
        yield from (id for item in value for id in _ids_in(item))


def _refuse_awake(session_id: str) -> None:
    """Refuse what would run at once, since a file may come from anyone and its new owner has not looked at it.

    :raises InvalidRequest: the session is in host mode with waiting messages, or an operator's run would continue.
    """
    for run_id in live_runs_of(session_id):
        raise InvalidRequest(
            f"The run {run_id} of session {session_id} would go on here at once. Pause or cancel it, and export the session again.",
            session=session_id,
        )
    awake = _rows("Session").filter(pk=session_id, host_mode=True, archived_at__isnull=True, deleted_at__isnull=True)
    if awake.exists() and count_waiting(session_id):
        raise InvalidRequest(
            f"Session {session_id} is in host mode, and the messages that wait for it would begin a turn here at once. End "
            "its host mode, or archive it, and export it again.",
            session=session_id,
        )


def _check_stored(header: Header) -> None:
    """:raises InvalidRequest: rows are missing or cannot be read, or the ledger does not prove them."""
    session_id = header.session_id
    for name, table in session_tables().items():
        if table.rows(session_id).count() != header.rows.get(name, 0):
            raise InvalidRequest(f"Not every row of {name} belongs to session {session_id}.", table=name)
    try:
        _read_all(session_id)
        session: Any = _rows("Session").get(pk=session_id)
        if (session.event_seq, session.head_hash) != (header.event_seq, header.head_hash):
            raise InvalidRequest(f"The header of {session_id} names another head than its session.")
        for problem in verify_session(session_id, alone=True).problems:
            raise InvalidRequest(
                f"The ledger of {session_id} does not hold: entry {problem.seq}: {problem.kind}, {problem.detail}.",
                session=session_id,
            )
    except MnesisError:
        raise
    except Exception as error:
        # Columns that hold JSON or names of kinds may hold anything in a forged file.
        raise InvalidRequest(f"Session {session_id} cannot be read: {error!r}"[:300]) from error


def _read_all(session_id: str) -> None:
    after = 0
    while messages := load_messages(session_id, after=after, limit=PAGE):
        if strange := {message.role for message in messages} - set(get_args(Role)):
            raise InvalidRequest(f"nobody speaks as {min(strange)[:80]!r}")
        after = messages[-1].seq
    after = 0
    while events := load_events(session_id, after=after, limit=PAGE):
        after = events[-1].seq
    for run in list_runs(session_id=session_id, limit=None):
        after = 0
        while items := list_items(run.id, after=after, limit=PAGE):
            load_attempts(run.id, [item.number for item in items])
            after = items[-1].number


def _rows(name: str) -> QuerySet[Any, Any]:
    return QuerySet(apps.get_model("sessions_app", name))

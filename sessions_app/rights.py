"""From ``Rules`` to rights: what the site (web, workers, commands) may do to the rows of each table.

One answer for both databases: ``grants`` makes it a PostgreSQL role's grants, and ``authorizer`` gives it to SQLite
whenever a statement is prepared. Only who owns the database may do more: ``migrate`` changes the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sessions_app.guards import guarded_models
from sessions_app.refusals import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What may be done to the rows of one table."""

    select: bool = True
    insert: bool = True
    update: frozenset[str] | None = None
    """The columns; ``None`` for all there are."""
    delete: bool = True

    def permit(self, privilege: str, column: str = "") -> bool:
        """Whether a privilege, in SQL's word for it, is among them; ``column`` is asked about for UPDATE only."""
        if privilege == "UPDATE":
            return self.update is None or column in self.update
        return {"SELECT": self.select, "INSERT": self.insert, "DELETE": self.delete}.get(privilege, False)


EVERYTHING = Rights()
READ_ONLY = Rights(insert=False, update=frozenset(), delete=False)
NOTHING = Rights(select=False, insert=False, update=frozenset(), delete=False)


def site_rights(table: str) -> Rights:
    """What the site may do: with the record what its rules permit, with everything else whatever it likes."""
    return _site_rights().get(table, EVERYTHING)


def auditor_rights(table: str) -> Rights:
    """What an auditor may do: read the record, and nothing of passwords, sign-ins or the queue."""
    return READ_ONLY if table in _site_rights() else NOTHING


@cache
def _site_rights() -> dict[str, Rights]:
    # Which migrations were applied is for 'migrate' to write down.
    return {model._meta.db_table: _rights_of(model) for model in guarded_models()} | {"django_migrations": READ_ONLY}


def _rights_of(model: Model) -> Rights:
    columns = (field.column for field in model._meta.concrete_fields if field.name in model.rules.changeable)
    return Rights(update=frozenset(map(str, columns)), delete=model.rules.deletable)

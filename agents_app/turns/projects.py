"""Projects as their owners make and change them: with the tools of sessions that begin in one, which the record does not know."""

from __future__ import annotations

from typing import Any

from agents_app.turns.defaults import check_default_tools
from mnesis_core.records import ProjectRecord
from sessions_app.record.projects import project_store


def create_project(*, owner_id: int, **values: Any) -> ProjectRecord:
    """:raises MnesisError: as ``project_store.create_project``
    :raises InvalidRequest: it names a tool that its owner does not have.
    """
    check_default_tools(values.get("config"), owner_id=owner_id)
    return project_store.create_project(owner_id=owner_id, **values)


def update_project(project_id: str, *, owner_id: int, **values: Any) -> ProjectRecord:
    """:raises MnesisError: as ``project_store.update_project``
    :raises InvalidRequest: it newly names a tool that its owner does not have.
    """
    before = project_store.load_own_project(project_id, owner_id=owner_id)
    if values.get("config") != before.config:
        check_default_tools(values.get("config"), owner_id=owner_id)
    return project_store.update_project(project_id, owner_id=owner_id, **values)

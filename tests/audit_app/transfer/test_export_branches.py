"""A session with branches leaves and comes in as the same tree, and a file of one that was changed is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from compaction_app.context.state import load_state
from compaction_app.queries import cover
from mnesis_core.errors import DuplicateIDError, InvalidRequest
from mnesis_core.transcripts.session_file import Header, RowLine, read_sessions, session_lines
from sessions_app.models import Branch, Session
from sessions_app.record.branch_queries import load_branches, load_path
from sessions_app.record.message_queries import load_messages
from tests.audit_app.transfer.test_export import Undone, Values, forged, is_refused_or_named, rows_of
from tests.support.people.cast import make_user
from tests.support.proof.second_verifier import problems_of_session, read_export
from tests.support.record.talks import exchange
from tests.support.record.trees import make_tree

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def tree(db: None) -> tuple[str, list[bytes], dict[str, Any], list[int]]:
    """The id, the lines, the rows and the numbers on the chosen path of a tree that is not in the database any more."""
    try:
        with transaction.atomic():
            session_id = make_tree(make_user("ada"))
            lines, rows = list(export_session(session_id)), rows_of(session_id)
            path = [message.seq for message in load_messages(session_id, path=load_path(session_id))]
            raise Undone
    except Undone:
        pass
    return session_id, lines, rows, path


@pytest.fixture
def eve(db: None) -> User:
    """The person who imports."""
    User.objects.create_user("nobody")
    return make_user("eve")


@pytest.mark.slow
def test_a_tree_comes_in_as_the_same_tree_and_goes_on(tree: Any, eve: User) -> None:
    session_id, lines, rows, path = tree
    import_sessions(lambda: lines, owner_id=eve.pk)
    assert rows_of(session_id) == rows
    assert list(export_session(session_id)) == lines
    assert not any(session.imported for session in import_sessions(lambda: lines, owner_id=eve.pk))
    assert {number: branch[1:] for number, branch in load_branches(session_id).items()} == {
        1: (0, 4),
        2: (1, 14),
        3: (0, 0),
        4: (0, 12),
    }
    assert [message.seq for message in load_messages(session_id, path=load_path(session_id))] == path
    assert path == [1, 2, 3, 4, 13, 14, 21, 22]
    for branch in range(5):
        load_state(session_id, branch=branch)
    assert cover(session_id).ok
    assert verify_session(session_id).problems == []
    assert [problems_of_session(session) for session in read_export(lines)] == [[]]
    exchange(session_id, "And now?", "Now.")
    assert [message.seq for message in load_messages(session_id, path=load_path(session_id))] == [*path, 25, 26]
    with pytest.raises(DuplicateIDError, match="it is not the same"):
        import_sessions(lambda: lines, owner_id=eve.pk)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "values", "of"),
    [
        ("branches", {"after_seq": 3}, {"number": 1}),
        ("branches", {"parent": 1}, {"number": 1}),
        ("branches", {"number": 9}, {"number": 4}),
        ("branches", {"number": 1}, {"number": 2}),
        ("branches", {"parent": -1}, {"number": 2}),
        ("branches", {"after_seq": 2**63}, {"number": 2}),
        ("branches", {"session_id": "sess_00000000000000000000000000"}, {"number": 2}),
        ("messages", {"branch": 0}, {"branch": 1}),
        ("messages", {"branch": 7}, {"branch": 2}),
        ("messages", {"branch": None}, {"branch": 2}),
        ("sessions", {"branch": 0}, {}),
        ("sessions", {"branch": 9}, {}),
        ("sessions", {"branch_seq": 3}, {}),
        ("context_items", {"branch": 0}, {"item_type": "summary"}),
        ("context_items", {"until": 2}, {"item_type": "summary"}),
        ("context_items", {"branch": 1}, {"branch": 0}),
        ("summary_nodes", {"branch": 2}, {}),
        ("summary_edges", {"branch": 2}, {}),
        ("compaction_runs", {"branch": 0}, {}),
    ],
)
def test_a_tree_that_was_changed_is_refused_and_nothing_is_written(
    tree: Any, eve: User, table: str, values: Values, of: Values
) -> None:
    changed = 0

    def forge(name: str, row: Values) -> None:
        nonlocal changed
        if name == table and all(row[column] == value for column, value in of.items()):
            row.update(values)
            changed += 1

    forgery = forged(tree[1], forge)
    assert changed
    with pytest.raises(InvalidRequest):
        import_sessions(lambda: forgery, owner_id=eve.pk)
    assert not Session._base_manager.exists()
    assert not Branch.objects.exists()
    assert is_refused_or_named(forgery)


def test_a_branch_that_is_left_out_is_refused(tree: Any, eve: User) -> None:
    header, *rest = read_sessions(tree[1])
    rows = [(row.table, row.values) for row in rest if isinstance(row, RowLine)]
    kept = [(table, values) for table, values in rows if table != "branches" or values["number"] != 3]
    assert isinstance(header, Header)
    forgery = list(session_lines(replace(header, rows={**header.rows, "branches": 3}), kept))
    with pytest.raises(InvalidRequest, match="does not hold"):
        import_sessions(lambda: forgery, owner_id=eve.pk)
    assert not Session._base_manager.exists()
    assert is_refused_or_named(forgery)

"""Runs in the inspector: from a run to its items and what was tried at them; nothing hostile does anything."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User
from django.test import Client

from agents_app.models import OperatorItem, OperatorRun, OperatorTry
from mnesis_core.maps.values import ItemState
from tests.support.people.cast import ada, inspector
from tests.support.record.inspected import list_of, page_of, shown
from tests.support.record.operators import accept, add_run, claim, refuse, settle
from tests.support.record.talks import HOSTILE, new_session

__all__ = ["ada", "inspector"]


def test_a_run_leads_to_its_items_and_these_to_what_was_tried(ada: User, inspector: Client) -> None:
    session_id = new_session(ada)
    run_id, other = add_run(session_id), add_run(session_id)
    first, second, _ = claim(session_id, run_id)
    settle(session_id, run_id, [accept(first), refuse(second)])
    items = f"{list_of(OperatorItem)}?run={run_id}"
    page = shown(inspector, page_of(OperatorRun.objects.get(pk=run_id)))
    assert items in page
    assert "{{ item }}" in page
    listed = shown(inspector, items)
    assert all(page_of(item) in listed for item in OperatorItem.objects.filter(run_id=run_id))
    assert not any(page_of(item) in listed for item in OperatorItem.objects.filter(run_id=other))
    failed = OperatorItem.objects.get(run_id=run_id, state=ItemState.FAILED)
    tries = f"{list_of(OperatorTry)}?run={run_id}&amp;item={failed.number}"
    assert tries in inspector.get(page_of(failed)).content.decode()
    [row] = OperatorTry.objects.filter(run_id=run_id, item=failed.number)
    assert page_of(row) in shown(inspector, tries.replace("&amp;", "&"))
    assert "no JSON" in shown(inspector, page_of(row))


def test_items_are_found_by_their_run_alone(ada: User, inspector: Client) -> None:
    run_id = add_run(new_session(ada), items=1)
    add_run(new_session(ada), items=1)
    [item] = OperatorItem.objects.filter(run_id=run_id)
    found = shown(inspector, f"{list_of(OperatorItem)}?q={run_id}")
    assert page_of(item) in found
    assert "1 operator item" in found
    assert "0 operator items" in shown(inspector, f"{list_of(OperatorItem)}?q=tide")


def test_hostile_templates_answers_and_errors_do_nothing(ada: User, inspector: Client) -> None:
    session_id = new_session(ada)
    run_id = add_run(session_id, items=1, template=HOSTILE, system_prompt=HOSTILE)
    [item] = claim(session_id, run_id)
    settle(session_id, run_id, [replace(refuse(item, output=HOSTILE), error=HOSTILE)])
    for model in (OperatorRun, OperatorItem, OperatorTry):
        for page in (list_of(model), page_of(model.objects.get())):
            answer = inspector.get(page).content.decode()
            assert "<script>alert" not in answer
            assert "\u202e" not in answer

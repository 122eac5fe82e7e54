"""One turn in the inspector: its steps, its neighbours, its compactions and the bars that say when."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from compaction_app.inspector.timeline import AXIS, NARROWEST, Axis
from mnesis_core.messages import TextPart
from sessions_app.models import Turn
from tests.support.record.inspected import claim, finish
from tests.support.record.talks import new_session, say
from tests.support.record.voyage import Ask, Voyage

pytestmark = pytest.mark.django_db
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_turn_leads_to_its_messages_tools_and_compactions(voyage: Voyage, ask: Ask) -> None:
    third = Turn.objects.get(session_id=voyage.id, seq=3)
    page = ask(voyage.at("turns/{turn}/steps/").replace(voyage.turn, third.id))
    kinds = re.findall(r'<span class="step-kind">(\w+)</span>', page)
    assert kinds == ["message", "call", "answer", "tool", "compaction"]
    assert "north" in page
    assert "unnamed model" in page  # its answer says no model
    seen = re.search(r'class="step-more" href="([^"]+)"', page)
    assert seen
    assert "Once more." in ask(seen[1])
    assert "6,200 → 2,100 tokens, level 1, 1 summary, 1 output pruned" in page
    assert f"/sessions/{voyage.id}/?at=" in page
    first = ask(voyage.at("turns/{turn}/"))
    assert "pruned" in first
    assert f'id="{voyage.part}"' in first


def test_a_compaction_is_found_in_the_turn_after_which_it_ended(voyage: Voyage, owner_client: Client) -> None:
    answer = owner_client.get(voyage.at("compactions/{run}/"))
    third = Turn.objects.get(session_id=voyage.id, seq=3)
    assert answer.status_code == 302
    assert f"/turns/{third.id}/" in answer.headers["Location"]
    assert answer.headers["Location"].endswith(f"#{voyage.run}")
    assert f'id="{voyage.run}"' in owner_client.get(answer.headers["Location"]).content.decode()


def test_a_turn_leads_to_its_neighbours(voyage: Voyage, ask: Ask) -> None:
    ids = dict(Turn.objects.filter(session_id=voyage.id).values_list("seq", "id"))
    for seq, beside in ((1, {2}), (2, {1, 3}), (4, {3})):
        page = ask(f"/sessions/{voyage.id}/inspect/turns/{ids[seq]}/")
        assert set(re.findall(r'turns/(\w+)/" rel="(?:prev|next)"', page)) == {ids[other] for other in beside}


def test_a_compaction_late_in_a_long_turn_is_shown_where_it_ended(owner: User, owner_client: Client) -> None:
    session_id = new_session(owner)
    say(session_id, *(("assistant", [TextPart(text=f"word {number}")]) for number in range(130)))
    run = claim(session_id)
    finish(session_id, run)
    answer = owner_client.get(f"/sessions/{session_id}/inspect/compactions/{run.id}/")
    assert f"?after=129#{run.id}" in answer.headers["Location"]
    assert f'id="{run.id}"' in owner_client.get(answer.headers["Location"]).content.decode()


def test_steps_of_a_long_turn_come_in_pages(owner: User, ask: Ask) -> None:
    session_id = new_session(owner)
    say(session_id, *(("assistant", [TextPart(text=f"word {number}")]) for number in range(130)))
    turn = Turn.objects.get(session_id=session_id).id
    page = ask(f"/sessions/{session_id}/inspect/turns/{turn}/steps/")
    more = re.search(r'hx-get="(/sessions/[^"]+after=100)"', page)
    assert more
    rest = ask(more[1])
    assert (page.count('class="step-kind"'), rest.count('class="step-kind"')) == (100, 30)
    assert "after=" not in rest


def moment(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("began", "ended", "bar"),
    [
        (0, 10, (0, AXIS)),
        (2.5, 5, (250, 250)),
        (-5, 5, (0, 500)),
        (9.999, 10, (AXIS - NARROWEST, NARROWEST)),
        (5, None, (500, 500)),
        (5, 5, (500, NARROWEST)),
        (8, 400, (800, 200)),
        (11, 12, None),
        (-9, -3, None),
    ],
)
def test_a_bar_never_leaves_its_axis(began: float, ended: float | None, bar: tuple[int, int] | None) -> None:
    axis = Axis(began=moment(0), ended=moment(10))
    found = axis.bar(moment(began), None if ended is None else moment(ended))
    assert (found and (found.x, found.width)) == bar


def test_a_turn_of_no_time_has_no_bars() -> None:
    assert Axis(began=moment(0), ended=moment(0)).bar(moment(0), moment(0)) is None
    assert Axis(began=moment(0), ended=moment(-3)).bar(moment(0), None) is None


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (-1, "before the turn"),
        (0, "+0 ms"),
        (10, "+10 s"),
        (12.5, "2.5 s after the turn"),
        (10 + 86_400, "after the turn"),
    ],
)
def test_when_something_began_is_said_of_the_turn(at: float, words: str) -> None:
    assert Axis(began=moment(0), ended=moment(10)).offset(moment(at)) == words

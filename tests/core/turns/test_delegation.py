"""The guard of delegation: what may be handed over, so that every delegation ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.config import DelegationConfig
from mnesis_core.errors import DelegationRefused, InvalidRequest, MnesisError
from mnesis_core.turns.inbox import AgentKind, Delegator, Handover, check_handover, check_room, check_siblings

CONFIG = DelegationConfig()
TASK = "Count the tide gauges of Portwell."
PART = Handover(prompt="Count those in the north.", delegated_scope="the north", kept_work="the south")


def delegator(depth: int = 1, launched: int = 0) -> Delegator:
    return Delegator(depth=depth, own_task=TASK, launched=launched)


@pytest.mark.parametrize(
    ("scope", "kept"),
    [
        ("", ""),
        ("the north", ""),
        ("", "the south"),
        ("the north", " - "),
        ("the north", "Nothing."),
        ("N/A", "the south"),
    ],
)
def test_a_sub_agent_that_does_not_say_what_it_keeps_is_refused(scope, kept):
    handover = Handover(prompt="Count those in the north.", delegated_scope=scope, kept_work=kept)
    with pytest.raises(DelegationRefused, match="kept_work"):
        check_handover(delegator(), handover, CONFIG)
    check_handover(delegator(depth=0), handover, CONFIG)


@pytest.mark.parametrize("words", [TASK, "count THE tide  gauges of Portwell"])
def test_a_sub_agent_that_hands_over_its_whole_task_is_refused_whatever_it_says_it_keeps(words):
    for handover in (
        Handover(prompt=words, delegated_scope="the north", kept_work="the south"),
        Handover(prompt="Do it.", delegated_scope=words, kept_work="the south"),
    ):
        with pytest.raises(DelegationRefused, match="whole task"):
            check_handover(delegator(), handover, CONFIG)
    with pytest.raises(DelegationRefused, match="whole task"):
        check_siblings(delegator(), [Handover(prompt=words), PART], CONFIG)


def test_a_scope_that_was_handed_over_once_is_a_whole_task_too():
    below = Delegator(depth=2, own_task=PART.message(), launched=0)
    for words in (PART.message(), PART.prompt, PART.delegated_scope):
        with pytest.raises(DelegationRefused, match="whole task"):
            check_handover(below, Handover(prompt=words, delegated_scope="some", kept_work="the rest"), CONFIG)
    smaller = Handover(prompt="Count the one at the mole.", delegated_scope="the mole", kept_work="the quay")
    check_handover(below, smaller, CONFIG)


def test_who_says_both_who_asks_an_explorer_and_siblings_pass():
    check_handover(delegator(), PART, CONFIG)
    check_handover(delegator(), Handover(prompt=TASK, agent=AgentKind.EXPLORE), CONFIG)
    check_siblings(delegator(), [Handover(prompt="the north"), Handover(prompt="the south")], CONFIG)


def test_siblings_are_two_at_least_and_different():
    with pytest.raises(InvalidRequest):
        check_siblings(delegator(0), [PART], CONFIG)
    with pytest.raises(DelegationRefused, match="the same"):
        check_siblings(delegator(0), [Handover(prompt="Look."), Handover(prompt="look")], CONFIG)
    with pytest.raises(InvalidRequest, match="prompt is empty"):
        check_siblings(delegator(0), [PART, Handover(prompt=" \n")], CONFIG)


def test_depth_siblings_and_number_are_bounded_for_everybody_explorers_too():
    deep = delegator(depth=CONFIG.max_depth)
    with pytest.raises(DelegationRefused, match="deep"):
        check_handover(deep, Handover(prompt="Look.", agent=AgentKind.EXPLORE), CONFIG)
    with pytest.raises(DelegationRefused, match="deep"):
        check_siblings(deep, [PART, Handover(prompt="Look.")], CONFIG)
    with pytest.raises(DelegationRefused, match="at a time"):
        check_room(delegator(0), CONFIG.max_siblings + 1, CONFIG)
    with pytest.raises(DelegationRefused, match="has launched 32"):
        check_handover(delegator(0, launched=32), PART, CONFIG)


texts = st.sampled_from(["", "nothing", TASK, "the north", "the south", "é\u0000"]) | st.text(max_size=20)
handovers = st.builds(Handover, prompt=texts, agent=st.sampled_from(AgentKind), delegated_scope=texts, kept_work=texts)


@given(st.lists(handovers, min_size=1, max_size=4), st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))
def test_every_delegation_ends_whatever_is_asked(asked, max_depth, max_children, max_siblings):
    """Followed to its end: each level hands on whatever it may; the depth is never passed."""
    config = DelegationConfig(max_depth=max_depth, max_children=max_children, max_siblings=max_siblings + 1)
    depth = 0
    while depth <= max_depth:
        try:
            if len(asked) == 1:
                check_handover(delegator(depth), asked[0], config)
            else:
                check_siblings(delegator(depth), asked, config)
        except MnesisError:
            return
        depth += 1
    raise AssertionError("the delegation went deeper than it may")

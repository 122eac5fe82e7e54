"""The tree of ``manage.py up``: a worker that does nothing is ended, and the tree outlasts what fails for a while."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import OperationalError

from mnesis_site.management.commands.up import Command
from mnesis_site.processes import SILENT_SECONDS, Child, Tree, Watchdog
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def own_signals() -> Iterator[None]:
    """A tree takes signals over; afterwards they are what they were."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    kept = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, kept, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("error", [OperationalError("refused"), OSError("no space"), ValueError("a mistake")])
def test_a_tree_outlasts_whatever_a_look_at_its_children_raises(error: Exception) -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        raise error

    Tree([], say=print).run(look)
    assert looks == 3


@pytest.mark.usefixtures("own_signals")
def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    said: list[str] = []

    def look() -> None:
        if len(said) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    Tree([Child(name="web", command=[str(tmp_path / "none")])], say=said.append).run(look)
    assert all(sentence.startswith("The web could not be started (") for sentence in said)


def test_a_line_that_cannot_be_printed_is_no_reason_to_end() -> None:
    output = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    Command(stdout=output).say("Mnesis runs")
    with suppress(OSError):
        output.close()


def test_a_frozen_child_is_ended_after_a_while_and_not_before() -> None:
    said: list[str] = []
    last_sign = 100.0
    now = 0.0
    child = Child(name="worker", command=[sys.executable, "-c", "import time; time.sleep(600)"])
    watchdog = Watchdog(child=child, gives_sign=lambda pid: now <= last_sign, say=said.append)
    watchdog.look(now)
    child.start(now)
    popen = child.popen
    assert popen is not None
    popen.send_signal(signal.SIGSTOP)
    for now in (50.0, 99.0, 99.5, last_sign + SILENT_SECONDS - 5):
        watchdog.look(now)
        assert popen.poll() is None
    now = last_sign + SILENT_SECONDS + 5
    watchdog.look(now)
    assert popen.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert said == ["The worker gave no sign of life for 120 seconds and is killed."]


def test_a_child_that_is_slow_to_start_has_as_long() -> None:
    child = Child(name="worker", command=[sys.executable, "-c", "import time; time.sleep(600)"])
    watchdog = Watchdog(child=child, gives_sign=lambda pid: False, say=print)
    child.start(1_000.0)
    popen = child.popen
    assert popen is not None
    watchdog.look(1_000.0 + SILENT_SECONDS - 1)
    assert popen.poll() is None
    child.signal_group(signal.SIGKILL)
    popen.wait(PATIENCE_SECONDS)

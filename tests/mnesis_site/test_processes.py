"""The watchdog of ``manage.py up``: a worker that is there and does nothing is ended."""

from __future__ import annotations

import signal
import sys

from mnesis_site.processes import SILENT_SECONDS, Child, Watchdog


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
    assert popen.wait(20) == -signal.SIGKILL
    assert said == ["The worker gave no sign of life for 120 seconds and is ended."]


def test_a_child_that_is_slow_to_start_has_as_long() -> None:
    child = Child(name="worker", command=[sys.executable, "-c", "import time; time.sleep(600)"])
    watchdog = Watchdog(child=child, gives_sign=lambda pid: False, say=print)
    child.start(1_000.0)
    popen = child.popen
    assert popen is not None
    watchdog.look(1_000.0 + SILENT_SECONDS - 1)
    assert popen.poll() is None
    child.signal_group(signal.SIGKILL)
    popen.wait(20)

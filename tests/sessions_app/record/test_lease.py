"""Whether the owner of a lease still runs, as far as another process of its host can see it."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import psutil
from django.utils import timezone

from sessions_app.record.lease import STARVED, is_abandoned, lives, new_owner
from tests.support.processes.children import another_process
from tests.support.sites.site import wait_until


def test_a_process_lives_until_it_is_killed_and_not_while_it_is_stopped() -> None:
    with another_process() as (owner, process):
        assert lives(owner)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        assert not lives(owner)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: lives(owner))
        process.kill()
        # Nobody has waited for it yet: a zombie still has its process id.
        wait_until(lambda: not lives(owner))
        process.wait()
        assert not lives(owner)


def test_another_process_with_the_same_id_is_not_the_owner() -> None:
    host, pid, began, word = new_owner().rsplit(":", 3)
    assert lives(f"{host}:{pid}:{began}:another")
    assert not lives(f"{host}:{pid}:{int(began) - 1}:{word}")
    assert not lives(f"elsewhere:{pid}:{began}:{word}")


def test_of_a_name_that_tells_nothing_its_lease_alone_counts() -> None:
    names = ("", "dead", "here:1", f"{os.getpid()}", "a:b:c:d", ":::", "host:99999999999999:1:a")
    assert not [name for name in names if lives(name)]


def test_names_of_one_process_differ_and_fit_their_column() -> None:
    assert new_owner() != new_owner()
    assert len(new_owner()) <= 100


def test_a_process_that_is_silent_for_two_minutes_loses_what_it_has_though_it_runs() -> None:
    now, owner = timezone.now(), new_owner()
    assert not is_abandoned(owner, expired_at=now - timedelta(seconds=60), now=now)
    assert is_abandoned(owner, expired_at=now - STARVED, now=now)

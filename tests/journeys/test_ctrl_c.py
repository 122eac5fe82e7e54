"""A person at a terminal who has heard enough."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from tests.journeys.conftest import Caller
from tests.support.sites.site import ROOT


def test_ctrl_c_interrupts_the_turn_and_keeps_what_was_said(caller: Caller) -> None:
    session = caller.new_session(title="heard enough")
    command = [sys.executable, "manage.py", "resume", session, "!slow 50 !long 400"]
    with subprocess.Popen(
        command, cwd=ROOT, env=caller.site.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130
    assert "TURN_CANCELLED: " in errors
    assert caller.texts(session)[1] == (said + rest).removesuffix("\n").rstrip()
    [turn] = caller.call("GET", f"/api/sessions/{session}/turns")["items"]
    assert turn["state"] == "cancelled", json.dumps(turn)

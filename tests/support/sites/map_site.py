"""A run in a site's own database, begun by a process that waits for its end: the site's workers do the work."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import psutil
from django.contrib.auth import get_user_model

from agents_app.queries import load_run
from agents_app.schedule import wake_workers
from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from tests.support.processes.children import RUN
from tests.support.record.maps import output_of, start
from tests.support.sites.site import ROOT, Site
from tests.support.sites.webs import children


def map_in_site(site: Site, items: int, *, seconds: float, **spec: Any) -> dict[str, Any]:
    """Run so many items in a site; returns how it ended."""
    return wait_for(begin_in_site(site, items, seconds=seconds, **spec), seconds=seconds)


def begin_in_site(site: Site, items: int, *, seconds: float, **spec: Any) -> subprocess.Popen[str]:
    """Begin such a run; the process waits for its end for so long."""
    command = [sys.executable, "-c", RUN, __name__, str(items), str(seconds), json.dumps(spec)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=site.environment, stdout=pipe, stderr=pipe, text=True)


def wait_for(begun: subprocess.Popen[str], *, seconds: float) -> dict[str, Any]:
    """How a run ended that ``begin_in_site`` began."""
    stdout, stderr = begun.communicate(timeout=seconds + 60)
    assert begun.returncode == 0, stderr
    ended: dict[str, Any] = json.loads(stdout)
    return ended


def worker_of(site: Site) -> psutil.Process | None:
    """The worker of a site that works on runs at the moment."""
    for process in children(site, "qcluster"):
        with suppress(psutil.Error):
            if any("operators/worker-" in file.path for file in process.open_files()):
                return process
    return None


def main(items: str, seconds: str, spec: str) -> int:
    """Begin a run over so many numbers, wait for its end, and print how it ended."""
    owner = get_user_model().objects.get_or_create(username="mapper")[0]
    session = lifecycle.create_session(owner=owner)
    began = time.monotonic()
    run = load_run(start(session, int(items), **json.loads(spec)))
    wake_workers()
    while run.state.is_live and time.monotonic() < began + float(seconds):
        time.sleep(0.05)
        run = load_run(run.id)
    took = time.monotonic() - began
    problems = [str(problem) for problem in verify_session(session.id).problems]
    output = output_of(run) if run.output_file_id else []
    told = {"state": run.state, "completed": run.counts.completed, "output": output, "problems": problems}
    print(json.dumps(told | {"seconds": took}))
    return 0

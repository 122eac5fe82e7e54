"""The web process of a site: found, and ended in ways that it does not choose."""

from __future__ import annotations

import signal

import psutil

from tests.support.sites.site import Site, named, wait_until, wait_until_ready
from tests.support.waiting import PATIENCE_SECONDS

WEB = "mnesis_site.server"


def web_server(site: Site) -> psutil.Process:
    """The process that serves the web."""
    [web] = children(site, WEB)
    return web


def end_web(site: Site, how: signal.Signals) -> None:
    """Signal the web process: SIGKILL is what the kernel does when memory is short."""
    web = web_server(site)
    web.send_signal(how)
    web.wait(PATIENCE_SECONDS)


def wait_until_it_runs_again(site: Site) -> None:
    """Wait for the web process that takes the place of a dead one."""
    wait_until(lambda: children(site, WEB))
    wait_until_ready(site)


def children(site: Site, name: str) -> list[psutil.Process]:
    """The processes below the launcher whose command line names this."""
    return named(site.processes()[1:], name)

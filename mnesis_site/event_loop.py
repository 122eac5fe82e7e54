"""The event loop of the web server: importing this module installs it for Twisted, on which Daphne runs."""

from __future__ import annotations

import uvloop
from twisted.internet import asyncioreactor

asyncioreactor.install(uvloop.new_event_loop())  # type: ignore[no-untyped-call]

"""The event loop of the web server: importing this module installs it for Twisted, on which Daphne runs."""

from __future__ import annotations

import sys

import uvloop
from twisted.internet import asyncioreactor

if "twisted.internet.reactor" not in sys.modules:  # a process has one, which no later import replaces
    asyncioreactor.install(uvloop.new_event_loop())  # type: ignore[no-untyped-call]

"""Documents of no origin, in frames of the pages: one draws diagrams, one shows HTML and SVG that a model wrote.

They say nothing themselves: the page sends what they show. Their policy keeps it from the page, the site and the network,
whatever runs there.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.views.decorators.cache import cache_control
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

LIBRARY = "vendor/mermaid/mermaid.min.js"
SECONDS = 60  # that a browser keeps one, which is the same for everyone


@require_safe
@xframe_options_sameorigin
@cache_control(public=True, max_age=SECONDS)
def diagram_frame(request: HttpRequest) -> HttpResponse:
    # The page brings the library: a browser keeps nothing for a document without an origin, and would load it for each diagram.
    return _frame(request, "Diagram", "js/blocks/diagram-frame.js", allowed=_hash_of(LIBRARY))


@require_safe
@xframe_options_sameorigin
@cache_control(public=True, max_age=SECONDS)
def preview_frame(request: HttpRequest) -> HttpResponse:
    return _frame(request, "Preview", "js/blocks/preview-frame.js")


def _frame(request: HttpRequest, title: str, name: str, *, allowed: str = "") -> HttpResponse:
    script = static(name)
    # By its whole address: browsers do not agree on what 'self' is in a document without an origin.
    address = request.build_absolute_uri(script)
    response = render(request, "sessions_app/transcript/frame.html", {"title": title, "script": script})
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src {address} {allowed}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
    )
    response.headers["X-DNS-Prefetch-Control"] = "off"
    return response


@cache
def _hash_of(name: str) -> str:
    """Return the source expression that permits a static file as an inline script."""
    content = Path(str(finders.find(name))).read_bytes()
    return f"'sha256-{b64encode(hashlib.sha256(content).digest()).decode()}'"

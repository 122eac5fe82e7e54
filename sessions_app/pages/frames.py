"""What the pages do not trust: documents of no origin in frames, and pictures and audio as responses of their own.

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
from django.utils.http import content_disposition_header
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


# A picture or audio of a session as a response of its own, which no browser takes for anything else.


def shown_alone(data: bytes, media_type: str, *, name: str) -> HttpResponse:
    """:param media_type: what the bytes are, never what somebody says of them; no SVG and no HTML"""
    headers = {
        "Content-Disposition": content_disposition_header(as_attachment=False, filename=name) or "inline",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return HttpResponse(data, content_type=media_type, headers=headers)

"""A picture or audio of a session as a response of its own, which no browser takes for anything else."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils.http import content_disposition_header


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

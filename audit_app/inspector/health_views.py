"""The health of one session."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from audit_app.health import look_at
from sessions_app.inspecting import inspected
from sessions_app.views import signed_in


@signed_in
def health(request: HttpRequest, session_id: str) -> HttpResponse:
    """What stands still, what is behind, what failed, and what to do about it."""
    about, now = inspected(request, session_id), timezone.now()
    context = {"about": about, "tab": "inspect-health", "health": look_at(about, now=now), "looked_at": now}
    return render(request, "audit_app/inspect_health.html", context)

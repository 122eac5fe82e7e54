"""What a past call was sent, as a page and as a file."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from compaction_app.rebuilding import RebuiltPayload, rebuild_payload
from mnesis_core.errors import CallNotFoundError
from mnesis_core.record import CallRecord
from sessions_app.admin.read_only import ReadOnlyAdmin
from sessions_app.admin.texts import show_text
from sessions_app.inspect_queries import load_heading
from sessions_app.queries import load_call
from sessions_app.rendering import show_invisible

_SEES_PAYLOADS = (
    "sessions_app.view_modelcall", "sessions_app.view_message", "sessions_app.view_messagepart",
    "sessions_app.view_prompttext", "compaction_app.view_summarynode",
)  # fmt: skip
_ALSO = {
    "file": ["files_app.view_filereference"],
    "map": ["files_app.view_filereference", "agents_app.view_operatorrun", "agents_app.view_operatortry"],
}
"""By what a call was for, what its payload holds besides."""


def payload_view(admin: ReadOnlyAdmin, request: HttpRequest, call_id: str) -> HttpResponse:
    """The payload and whether it is byte for byte what was sent.

    :raises PermissionDenied: something was sent, or this person may not see all that a payload holds.
    :raises Http404: there is no such call.
    """
    call, rebuilt = _rebuilt(request, call_id)
    text = json.dumps(rebuilt.payload, ensure_ascii=False)
    url = reverse("admin:inspect_payload_file", args=[call.id])
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "about": load_heading(call.session_id),
        "title": "What the model was sent",
        "call_url": reverse("admin:sessions_app_modelcall_change", args=[quote(call.id)]),
        "rebuilt": rebuilt,
        "problems": [show_invisible(problem) for problem in rebuilt.problems],
        "text": show_text(text, label="Payload", pretty=True, url=url) if rebuilt.payload is not None else None,
    }
    return TemplateResponse(request, "admin/inspector/payload.html", context)


def payload_file_view(request: HttpRequest, call_id: str) -> HttpResponse:
    """The whole payload as a file of JSON.

    :raises PermissionDenied: something was sent, or this person may not see all that a payload holds.
    :raises Http404: there is no such call, or its payload cannot be rebuilt.
    """
    return payload_file(*_rebuilt(request, call_id))


def payload_file(call: CallRecord, rebuilt: RebuiltPayload) -> HttpResponse:
    """A payload as a file of JSON.

    :raises Http404: it cannot be rebuilt.
    """
    if rebuilt.payload is None:
        raise Http404("this payload cannot be rebuilt")
    response = JsonResponse(rebuilt.payload)
    response["Content-Disposition"] = f'attachment; filename="{call.id}.json"'
    return response


def may_see_payload(user: Any, purpose: str) -> bool:
    """Whether somebody may look at all that the payload of a call for this purpose holds, whoever's it is."""
    return bool(user.has_perms((*_SEES_PAYLOADS, *_ALSO.get(purpose, ()))))


def _rebuilt(request: HttpRequest, call_id: str) -> tuple[CallRecord, RebuiltPayload]:
    if request.method not in ("GET", "HEAD") or not request.user.has_perms(_SEES_PAYLOADS):
        raise PermissionDenied
    try:
        call = load_call(call_id)
    except CallNotFoundError as error:
        raise Http404("there is no call of this id") from error
    if not may_see_payload(request.user, call.purpose):
        raise PermissionDenied
    return call, rebuild_payload(call)

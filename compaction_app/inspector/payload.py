"""Who may see what a past call was sent, and the payload as a file."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse, JsonResponse

from compaction_app.rebuild import RebuiltPayload
from mnesis_core.records import CallRecord

SEES_PAYLOADS = (
    "sessions_app.view_modelcall", "sessions_app.view_message", "sessions_app.view_messagepart",
    "sessions_app.view_prompttext", "compaction_app.view_summarynode",
)  # fmt: skip
_ALSO = {
    "file": ["files_app.view_filereference"],
    "map": ["files_app.view_filereference", "agents_app.view_operatorrun", "agents_app.view_operatortry"],
}
"""By what a call was for, what its payload holds besides."""


def may_see_payload(user: Any, purpose: str) -> bool:
    """Return whether a person may look at all that the payload of another person's call for this purpose holds."""
    return bool(user.has_perms((*SEES_PAYLOADS, *_ALSO.get(purpose, ()))))


def payload_file(call: CallRecord, rebuilt: RebuiltPayload) -> HttpResponse:
    """Return a payload as a file of JSON.

    :raises Http404: it cannot be rebuilt.
    """
    if rebuilt.payload is None:
        raise Http404("this payload cannot be rebuilt")
    response = JsonResponse(rebuilt.payload)
    response["Content-Disposition"] = f'attachment; filename="{call.id}.json"'
    return response

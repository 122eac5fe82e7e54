"""The page of a preview: what a summary would say, or says, that was made again."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.queries import compare_previews
from sessions_app.pages.permissions import inspected
from sessions_app.pages.views import signed_in

MARKS = {"+": "added", "-": "removed", "@": "place"}


@signed_in
def preview(request: HttpRequest, session_id: str, preview_id: str) -> HttpResponse:
    """Show the summaries of a preview, the one that was asked for first, each beside what its text was."""
    about = inspected(request, session_id)
    compared = compare_previews(preview_id, session_id=about.id)
    changes = [(one, [(MARKS.get(line[:1], ""), line) for line in one.lines]) for one in reversed(compared)]
    asked = compared[-1]
    may_apply = about.is_own and not asked.is_applied and any(one.lines for one in compared)
    context = {"about": about, "tab": "inspect-summaries", "changes": changes, "asked": asked, "may_apply": may_apply}
    return render(request, "compaction_app/summaries/preview.html", context)

"""Files that a session is given by its project and its assistant: kept once, and referred to when its next turn begins."""

from __future__ import annotations

from files_app.intake import refer
from files_app.models import FileReference, ProjectFile
from mnesis_core.records import AssistantFileRecord, SessionRecord
from sessions_app.assistants.assistant_queries import files_given_to


def refer_to_given_files(session: SessionRecord) -> list[str]:
    """Let a session refer to the files of its project and its assistant; return the ids of those that no message has brought yet.

    That is said of a reference behind which there is a message. So none are made while a turn runs, whose messages bring
    nothing.

    :raises SessionArchived: it takes nothing new.
    """
    if session.running_turn_id:
        return []
    found: list[AssistantFileRecord | ProjectFile] = list(files_given_to(session))
    if session.project_id:
        found += ProjectFile.objects.filter(project_id=session.project_id).order_by("pk")
    given = {(file.content_id, file.path): file for file in found}
    known = FileReference.objects.filter(session_id=session.id, content_id__in=[id for id, _ in given])
    there = {(row.content_id, row.path): row for row in known} if given else {}
    files = []
    for place, file in given.items():
        row = there.get(place)
        if row is None:
            of = session.owner_id
            new = refer(session.id, owner_id=of, path=file.path, content_id=file.content_id, size=file.size)
            files.append(new.id)
        elif row.after_message_seq == session.message_seq:
            files.append(str(row.id))
    return files

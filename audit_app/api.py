"""Proof, export and import at the REST endpoint, and the page of imports."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from ninja import Field, Router, Schema, Status

from audit_app.proof.verify import verify_now
from audit_app.transfer.export import ENDINGS, Format, Spool, export_all, export_one
from audit_app.transfer.imports import Import, begin_import, follow_import
from mnesis_core.errors import InvalidRequest, RequestTooLarge
from sessions_app.callers import owner_id
from sessions_app.conf import default_model, get_spec, list_models, site_config
from sessions_app.pages.formats import fill_in, format_number, format_size
from sessions_app.pages.markdown import show_invisible, shown_title
from sessions_app.pages.views import model_label, reader_of, signed_in
from sessions_app.record import session_queries
from sessions_app.record.session_queries import titles_of
from sessions_app.schemas import ErrorBody, ErrorOut, Out, Text

router = Router(tags=["audit"])

ERRORS = {401: ErrorOut, 404: ErrorOut, 429: ErrorOut}
BUSY = {409: ErrorOut}


class ProblemOut(Out):
    """One thing that is not as it was written; ``seq`` is the entry that says otherwise, 0 where none tells of it."""

    session: str
    seq: int
    kind: str
    detail: str


class CheckedOut(Out):
    """The number of sessions, entries and commitments that were verified."""

    sessions: int
    entries: int
    commitments: int
    first_form_entries: int
    unbound_sessions: int
    moved: list[str]


class ReportOut(Out):
    """The result of a verification."""

    ok: bool
    checked: CheckedOut
    problems: list[ProblemOut]


@router.post("/sessions/{session_id}/verify", response={200: ReportOut, **ERRORS, **BUSY}, summary="Verify a session")
def verify(request: HttpRequest, session_id: str) -> Any:
    """Prove that a session's ledger is whole and that its rows are what it says, in both directions.

    One session at a time is verified on a site: while another one is, this waits, and after ten seconds says CONFLICT.
    """
    session = session_queries.load_session(session_id, owner_id=owner_id(request))
    return verify_now(session.id, entries=session.event_seq).as_dict()


TYPES: dict[Format, str] = {
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
ZIP = "application/zip"
TEXT = {"schema": {"type": "string"}}


@router.get(
    "/sessions/{session_id}/export",
    response={200: None, **ERRORS, 422: ErrorOut},
    summary="Export a session",
    openapi_extra={"responses": {200: {"content": {type.partition(";")[0]: TEXT for type in TYPES.values()}}}},
)
def export(request: HttpRequest, session_id: str, format: Format = "jsonl") -> Any:
    """A whole session: as JSON Lines, for 'manage.py import_session' on this site or another; or to be read."""
    session = session_queries.load_session(session_id, owner_id=owner_id(request))
    return _download(export_one(session.id, format), name=f"{session.id}{ENDINGS[format]}", type=TYPES[format])


@router.get(
    "/export",
    response={200: None, 401: ErrorOut, 422: ErrorOut},
    summary="Export all sessions",
    openapi_extra={
        "responses": {200: {"content": {TYPES["jsonl"]: TEXT, ZIP: {"schema": {"type": "string", "format": "binary"}}}}}
    },
)
def export_everything(request: HttpRequest, format: Format = "jsonl") -> Any:
    """All sessions of yours that are not deleted: as JSON Lines, which can be imported; or a zip of transcripts to read."""
    is_zip = format != "jsonl"
    name = f"mnesis-{timezone.localdate().isoformat()}{'.zip' if is_zip else ENDINGS[format]}"
    pieces = export_all(owner_id=owner_id(request), format=format)
    return _download(pieces, name=name, type=ZIP if is_zip else TYPES[format])


def _download(pieces: Generator[bytes, None, None], *, name: str, type: str) -> StreamingHttpResponse:
    headers = {
        # Never shown in our pages' place: the texts are other people's.
        "Content-Disposition": content_disposition_header(True, name),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    return StreamingHttpResponse(Spool(pieces), content_type=type, headers=headers)


IMPORT_ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 413: ErrorOut, 422: ErrorOut}
FORM_BYTES = 1_000_000  # the size of a request beside its files
FILES = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "model": {"type": "string"},
                    },
                }
            }
        },
    }
}


class ImportedOut(Out):
    """A session that an import made, or found."""

    id: str
    title: Text


class ImportOut(Out, Schema):
    """An import. ``done`` of ``total`` ``unit`` are ``verb`` ("read", "stored"); a total of 0 is not known.

    What came in before an import failed stays, so ``sessions`` may name some of a failed one.
    """

    id: str
    state: Literal["waiting", "running", "done", "failed"]
    files: Annotated[list[Text], Field(validation_alias="names")]
    verb: str
    unit: str
    done: int
    total: int
    sessions: list[ImportedOut]
    notes: list[Text]
    error: ErrorBody | None

    @staticmethod
    def resolve_sessions(job: Import) -> list[dict[str, str]]:
        titles = titles_of(job.session_ids, owner_id=job.owner_id) if job.session_ids else {}
        return [{"id": id, "title": titles[id]} for id in job.session_ids if id in titles]


@router.post(
    "/sessions/import", response={202: ImportOut, **IMPORT_ERRORS}, summary="Import sessions", openapi_extra=FILES
)
def import_files(request: HttpRequest) -> Any:
    """Bring in files, up to 50 at once: exports of this program, Claude Code, ChatGPT, OpenAI chat, LoCoMo, Autobyteus; also gzipped,
    and the memory of Autobyteus' agents as a zip.

    A worker does it; ask the address with its ``id`` how far it is. Repeating an import adds only what is new.
    """
    owner = owner_id(request)
    if request.content_type != "multipart/form-data":
        raise InvalidRequest("send multipart with file", field="file")
    length = request.headers.get("Content-Length", "")
    most = site_config().files.import_bytes
    if length.isdecimal() and len(length) < 19 and int(length) > most + FORM_BYTES:
        raise RequestTooLarge(gettext_noop("An import may have %(most)s bytes."), {"most": most}, field="file")
    model = get_spec(request.POST.get("model") or default_model(), user_id=owner).alias
    files = ((file.name or "", file.chunks()) for file in request.FILES.getlist("file"))
    return Status(202, begin_import(files, owner_id=owner, model=model))


@router.get("/sessions/import/{import_id}", response={200: ImportOut, **IMPORT_ERRORS}, summary="How far an import is")
def read_import(request: HttpRequest, import_id: str) -> Any:
    """An import of yours, for a day."""
    return follow_import(import_id, owner_id=owner_id(request))


MOST_SHOWN = 200


@signed_in
def import_page(request: HttpRequest) -> HttpResponse:
    return render(request, "audit_app/transfer/import.html", _choices(request))


@signed_in
def import_status(request: HttpRequest, import_id: str) -> HttpResponse:
    about = follow_import(import_id, owner_id=reader_of(request))
    ids = about.session_ids[:MOST_SHOWN]
    titles = titles_of(ids, owner_id=about.owner_id) if ids else {}
    shown = {"done": format_number(about.done), "total": format_number(about.total)}
    context = {
        "about": about,
        "names": [show_invisible(name) for name in about.names],
        "sessions": [(id, shown_title(titles[id])) for id in ids if id in titles],
        "more_sessions": max(0, len(about.session_ids) - MOST_SHOWN),
        "notes": [show_invisible(note) for note in about.notes],
        "error": show_invisible(fill_in(about.error_text, about.error_values)),
        "progress": _("%(done)s of %(total)s") % shown if about.total else shown["done"],
    }
    if "HX-Request" in request.headers:
        return render(request, "audit_app/transfer/_import.html", context)
    return render(request, "audit_app/transfer/import.html", _choices(request) | context)


def _choices(request: HttpRequest) -> dict[str, Any]:
    return {
        "models": [(spec.alias, model_label(spec)) for spec in list_models(user_id=reader_of(request))],
        "default_model": default_model(),
        "largest": site_config().files.import_bytes,
        "largest_text": format_size(site_config().files.import_bytes),
    }

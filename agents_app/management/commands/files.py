"""``manage.py files add|list|show``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from agents_app.endpoints.terminal import EndpointCommand, opened
from files_app.api import FileList, FileOut, file_page
from files_app.intake import chunks_of, keep_file
from files_app.queries import load_file_reference
from sessions_app.management.acting import find_user
from sessions_app.record.session_queries import find_session


class Command(EndpointCommand):
    help = "Give a session a file, list files, or describe one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        subs = parser.add_subparsers(dest="verb", required=True)
        add, listing, show = (subs.add_parser(verb) for verb in ("add", "list", "show"))
        add.add_argument("session", help="an id, 'last', or '~N' for the Nth before the last")
        add.add_argument("path", help="a file on this machine; '-' reads standard input")
        add.add_argument("--as", dest="name", help="the path of the file in the session (default: as given)")
        listing.add_argument("session", nargs="?", help="only files of this session")
        listing.add_argument("--limit", type=int, default=100)
        show.add_argument("file", help="a file_ id")
        for sub in (add, listing, show):
            self.add_common(sub)

    def do_add(self, options: dict[str, Any]) -> None:
        owner_id = find_user(options["user"]).pk
        session_id = find_session(options["session"], owner_id=owner_id).id
        with opened(options["path"]) as source:
            chunks = chunks_of(source)
            kept = keep_file(session_id, owner_id=owner_id, path=options["name"] or options["path"], chunks=chunks)
        file = FileOut.model_validate(kept)
        self.show(file.model_dump, lambda: [_line(file)], as_json=options["as_json"])

    def do_list(self, options: dict[str, Any]) -> None:
        owner_id = find_user(options["user"]).pk
        session = options["session"]
        page = file_page(
            owner_id=owner_id,
            session_id=find_session(session, owner_id=owner_id).id if session else None,
            limit=min(max(options["limit"], 1), 500),
            cursor=None,
        )
        files = FileList.model_validate(page).items
        self.show(lambda: [file.model_dump() for file in files], lambda: map(_line, files), as_json=options["as_json"])
        if not files and not options["as_json"]:
            self.print_note("No files yet. Add one to a session: manage.py files add last PATH")

    def do_show(self, options: dict[str, Any]) -> None:
        owner_id = find_user(options["user"]).pk
        file = FileOut.model_validate(load_file_reference(options["file"], owner_id=owner_id))
        summary = [f"\n{file.exploration_summary}"] if file.exploration_summary else []
        self.show(file.model_dump, lambda: [_line(file), *summary], as_json=options["as_json"])


def _line(file: FileOut) -> str:
    size = "?" if file.size is None else f"{file.size:,}"
    return f"{file.id}  {file.state:8} {file.file_type:10} {size:>13}  {file.path}"

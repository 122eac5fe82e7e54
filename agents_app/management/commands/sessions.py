"""``manage.py sessions list|read|branches|choose|interrupt|archive|reopen|fork|compact|approve|refuse|answer|host|send|inbox|trash|restore|delete``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from typing import Any

from agents_app.endpoints.terminal import read_message, replying
from agents_app.management.commands.run import Command as RunCommand
from agents_app.schemas import DecisionIn
from agents_app.turns import branches, lifecycle
from agents_app.turns.branches import BranchList, BranchOut
from agents_app.turns.claim import ToolResult, deliver
from agents_app.turns.overview import InboxList, InboxMessageOut, SessionRead, inbox_page
from compaction_app.compact import compact_now
from compaction_app.views import CompactionOut
from mnesis_core.messages import text_of
from mnesis_core.text import excerpt, printable
from mnesis_core.turns.inbox import Draft, MessageKind
from sessions_app.api import MessageList, SessionList, message_page, session_page
from sessions_app.management.acting import find_user
from sessions_app.record.branch_queries import load_path
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import BACK, find_session, load_session
from sessions_app.schemas import Out, SessionOut, TurnOut

VERBS = (
    *("read", "branches", "choose", "interrupt", "archive", "reopen", "fork", "compact"),
    *("approve", "refuse", "answer", "host", "send", "inbox", "trash", "restore", "delete"),
)
_PART = {"help": "the tool call: its part_ id, as the turn's waits_for has it"}
_DECISION: dict[str, dict[str, Any]] = {
    "part": _PART,
    "--note": {"default": "", "help": "told to the model with a refusal"},
}
_ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "read": {"--branch": {"type": int, "help": "the branch whose messages are read (default: the chosen one)"}},
    "compact": {
        "--turn": {"action": "append", "help": "a turn to compact, repeatable (default: all but the newest turns)"}
    },
    "choose": {"branch": {"type": int, "help": "the number of the branch that the next message is to continue"}},
    "approve": _DECISION,
    "refuse": _DECISION,
    "answer": {
        "part": _PART,
        "answers": {"nargs": "+", "help": "an option or other words for each question, '' for none"},
    },
    "host": {
        "mode": {"choices": ("on", "off")},
        "--name": {"help": "by which peers address it (default: its agent)"},
    },
    "send": {
        "message": {"nargs": "*", "help": "the text to send; '-' or nothing reads standard input"},
        "--kind": {"choices": [kind.value for kind in MessageKind], "default": MessageKind.MESSAGE.value},
        "--in-reply-to": {"default": "", "metavar": "MESSAGE", "help": "the inbox_ id that a response answers"},
    },
}
_CHOICE = {"yes": True, "no": False, "all": None}


class Command(RunCommand):
    help = (
        "List, read, interrupt, archive, reopen, fork, compact, trash, restore or delete sessions; list the branches of one, and choose one "
        "of them; approve or refuse a tool call, or answer its questions; have one stay alive for messages, send it one, or list its inbox. Sessions in the trash, and deleted ones, are hidden; all their rows stay."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        subs = parser.add_subparsers(dest="verb", required=True)
        for verb in VERBS:
            sub = subs.add_parser(verb)
            sub.add_argument("session", help="an id, 'last', or '~N' for the Nth before the last")
            self.add_common(sub)
            for name, options in _ARGUMENTS.get(verb, {}).items():
                sub.add_argument(name, **options)
            if verb == "fork":
                place = sub.add_mutually_exclusive_group(required=True)
                place.add_argument("--at", metavar="MESSAGE", help="the last message that it has")
                place.add_argument("--before", metavar="MESSAGE", help="the first message that it does not have")
        listing = subs.add_parser("list")
        self.add_common(listing)
        listing.add_argument("--q", default="", help="a word of the title")
        listing.add_argument("--label", help="key=value")
        listing.add_argument("--archived", choices=tuple(_CHOICE), default="all")
        listing.add_argument("--trashed", action="store_true", help="only sessions in the trash")
        listing.add_argument("--parent", metavar="SESSION", help="only sessions launched by this one or forked from it")
        listing.add_argument("--sub-agents", choices=tuple(_CHOICE), default="all", help="sessions launched by turns")
        listing.add_argument("--limit", type=int, default=100)

    def handle(self, *args: Any, **options: Any) -> None:
        owner_id = find_user(options["user"]).pk
        if options["verb"] == "list":
            self.do_list(owner_id, options)
            return
        session_id = options["session"]
        # A session in the trash is found by its id only, and only to be restored or deleted for good.
        if options["verb"] not in ("restore", "delete") or BACK.fullmatch(session_id):
            session_id = find_session(session_id, owner_id=owner_id).id
        getattr(self, f"do_{options['verb']}")(session_id, owner_id, options)

    def do_list(self, owner_id: int, options: dict[str, Any]) -> None:
        page = session_page(
            owner_id=owner_id,
            archived=_CHOICE[options["archived"]],
            label=options["label"],
            q=options["q"],
            parent_id=options["parent"],
            sub_agents=_CHOICE[options["sub_agents"]],
            trashed=options["trashed"],
            limit=min(max(options["limit"], 1), 500),
            cursor=None,
        )
        lines = [f"{one.id}  {one.state:11} {one.model:12} {printable(one.title)}" for one in page["items"]]
        self.show(
            lambda: SessionList.model_validate(page).model_dump()["items"], lambda: lines, as_json=options["as_json"]
        )
        if not lines and not options["as_json"]:
            self.print_note("There is no session. Start one: manage.py run 'Hello'")

    def do_read(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        if options["as_json"]:
            session = SessionRead.model_validate(load_session(session_id, owner_id=owner_id)).dict()
            page_of = partial(message_page, branch=options["branch"])
            self.print_json(session | {"messages": _every(page_of, MessageList, session_id, owner_id)})
            return
        path, after = load_path(session_id, options["branch"]), 0
        while messages := load_messages(session_id, after=after, limit=200, path=path):
            for message in messages:
                text = self.readable(text_of(tuple(stored.part for stored in message.parts)))
                self.stdout.write(f"[{message.seq}] {message.role}: {text}\n")
            after = messages[-1].seq

        if path is not None:
            self.print_note(f"This is branch {path.branch}; all of them: manage.py sessions branches {session_id}")

    def do_branches(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        found = branches.list_branches(session_id, owner_id=owner_id)

        def line(branch: BranchOut) -> str:
            begins = f"after {branch.after_message_id}" if branch.after_message_id else "with the session"
            end = f", to {branch.last_message_id}" if branch.last_message_id else ""
            return f"{'*' if branch.is_chosen else ' '} {branch.number}  {branch.messages} messages {begins}{end}"

        self.show(
            lambda: BranchList(items=found).model_dump()["items"],
            lambda: map(line, found),
            as_json=options["as_json"],
        )

    def do_choose(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        branches.choose_branch(session_id, options["branch"], owner_id=owner_id)
        self.do_branches(session_id, owner_id, options)

    def do_interrupt(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        self._print(TurnOut, lifecycle.interrupt(session_id, owner_id=owner_id), options)

    def do_archive(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        self._print(SessionOut, lifecycle.archive_session(session_id, owner_id=owner_id), options)

    def do_reopen(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        self._print(SessionOut, lifecycle.reopen_session(session_id, owner_id=owner_id), options)

    def do_fork(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        owner, at, before = find_user(options["user"]), options["at"], options["before"]
        fork = lifecycle.fork_session(session_id, owner=owner, at_message_id=at, before_message_id=before)
        self._print(SessionOut, fork, options)

    def do_compact(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        self._print(CompactionOut, compact_now(session_id, turn_ids=options["turn"] or ()), options)

    def do_approve(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        said = DecisionIn(part_id=options["part"], approved=options["verb"] == "approve", note=options["note"])
        self.turn(session_id, owner_id, replying(session_id, owner_id, [said]), as_json=options["as_json"])

    do_refuse = do_approve

    def do_answer(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        said = ToolResult(tool_call_id=options["part"], answers=[[answer] for answer in options["answers"]])
        self.turn(session_id, owner_id, replying(session_id, owner_id, [said]), as_json=options["as_json"])

    def do_host(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        session = lifecycle.update_session(
            session_id, owner_id=owner_id, host_mode=options["mode"] == "on", peer_name=options["name"]
        )
        self._print(SessionOut, session, options)

    def do_send(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        draft = Draft(
            text=read_message(options["message"]), kind=MessageKind(options["kind"]), in_reply_to=options["in_reply_to"]
        )
        # Delivered only: a web process takes it within seconds, and this one is about to end.
        sent = InboxMessageOut.model_validate(deliver(session_id, owner_id=owner_id, draft=draft)).model_dump()
        self.show(lambda: sent, lambda: [_line_of(sent)], as_json=options["as_json"])

    def do_inbox(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        messages = _every(partial(inbox_page, waiting=None), InboxList, session_id, owner_id)
        lines = [f"{_line_of(message)}  {excerpt(message['text'], 100)}" for message in messages]
        self.show(lambda: messages, lambda: lines, as_json=options["as_json"])

    def do_trash(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        self._print(SessionOut, lifecycle.trash_session(session_id, owner_id=owner_id), options)

    def do_restore(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        self._print(SessionOut, lifecycle.restore_session(session_id, owner_id=owner_id), options)

    def do_delete(self, session_id: str, owner_id: int, options: dict[str, Any]) -> None:
        lifecycle.delete_session(session_id, owner_id=owner_id)
        gone = {"id": session_id, "state": "deleted"}
        self.show(lambda: gone, lambda: [f"{session_id}  deleted"], as_json=options["as_json"])

    def _print(self, schema: type[Out], record: Any, options: dict[str, Any]) -> None:
        self.show(
            lambda: schema.model_validate(record).model_dump(),
            lambda: [f"{record.id}  {record.state}"],
            as_json=options["as_json"],
        )


def _line_of(message: dict[str, Any]) -> str:
    return f"{message['id']}  {message['kind']:8}  {message['turn_id'] or 'waiting'}"


def _every(page_of: Callable[..., Any], schema: type[Out], session_id: str, owner_id: int) -> list[dict[str, Any]]:
    """Return the items of all pages, as JSON shows them."""
    items: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = page_of(session_id, owner_id=owner_id, after=after, limit=500)
        items += schema.model_validate(page).model_dump()["items"]
        after = page["next_cursor"]
    return items

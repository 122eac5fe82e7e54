"""``manage.py summaries tree|describe|expand|cover|align``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from compaction_app import queries
from compaction_app.lineage.claims import request_alignment, unaligned_summaries
from mnesis_core.compaction.dag import Span
from mnesis_core.errors import MnesisError
from mnesis_core.messages import text_of
from mnesis_core.text import printable
from sessions_app.management.acting import SiteCommand
from sessions_app.pages.formats import format_money
from sessions_app.record.session_queries import load_session

MESSAGES_AT_ONCE = 200


class Command(SiteCommand):
    help = (
        "Look into the summary DAG: its tree, one summary, what a summary stands for, and whether the contexts stand "
        "for every message exactly once. 'cover' exits with 1 where they do not. 'align' lets a worker find what the "
        "sentences of older or imported summaries rest on."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, name in (("tree", "session"), ("describe", "summary"), ("expand", "summary")):
            sub = verbs.add_parser(verb)
            sub.add_argument(name, metavar=name.upper())
            sub.add_argument("--json", action="store_true")
            if verb == "expand":
                sub.add_argument("--deep", action="store_true", help="the messages, through all steps")
        for verb in ("cover", "align"):
            sub = verbs.add_parser(verb)
            sub.add_argument("sessions", metavar="SESSION", nargs="*")
            sub.add_argument("--all", action="store_true", help="every session that has summaries")
            sub.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None

    def _tree(self, options: dict[str, Any]) -> None:
        session_id = load_session(options["session"]).id
        graph = queries.load_graph(session_id)
        lines = [line for root in graph.roots() for line in graph.below(root.id)]
        self._answer(
            [asdict(node) | {"steps": steps} for steps, node in lines],
            [
                f"{'  ' * steps}{node.kind} {node.id} L{node.level} messages {_span((node.first_seq, node.last_seq))} "
                f"({node.message_count}), {node.token_count:,} tokens, {format_money(node.cost_micros)}"
                f"{', stale' if node.freshness == 'stale' else ''}"
                for steps, node in lines
            ]
            or ["No summaries yet."],
            options,
        )

    def _describe(self, options: dict[str, Any]) -> None:
        found = queries.describe_summary(queries.load_summary(options["summary"]))
        summary, cost = found.summary, found.cost
        values = {
            "summary": asdict(summary),
            "revisions": [asdict(node) for node in found.revisions],
            "above": [asdict(node) for node in found.above],
            "in_context": found.in_context,
            "subtree": asdict(cost),
        }
        revisions = [
            f"{node.id} (text of {node.restores_id})" if node.restores_id else node.id for node in found.revisions
        ]
        standing = "itself" if found.in_context == summary.id else found.in_context or "nothing"
        words = [
            f"{summary.kind} {summary.id}, level {summary.level}, depth {summary.depth}, by {summary.model or 'no model'}",
            f"for messages {summary.first_seq} to {summary.last_seq} ({summary.message_count})",
            f"{summary.token_count:,} tokens for {summary.source_tokens:,}",
            f"sources: {', '.join(id for _, id in summary.source_ids)}",
            f"revisions: {', '.join(revisions)}",
            f"above: {', '.join(node.id for node in found.above) or 'nothing'}; in the context: {standing}",
            f"with all under it: {cost.summaries:,} summaries for {cost.messages:,} messages, {cost.token_count:,} tokens "
            f"of text; asked with {cost.tokens_input:,} tokens, answered with {cost.tokens_output:,}, "
            f"{format_money(cost.cost_micros)}",
            "",
            printable(summary.text),
        ]
        self._answer(values, words, options)

    def _expand(self, options: dict[str, Any]) -> None:
        summary = queries.load_summary(options["summary"])
        if summary.kind == "condensed" and not options["deep"]:
            sources = queries.expand_step(summary)
            words = [
                f"{source.id}{'' if source.id == read else f', a revision of {read}, which was read'}\n"
                f"{printable(source.text)}\n"
                for read, source in sources
            ]
            self._answer([asdict(source) | {"source_id": read} for read, source in sources], words, options)
            return
        offset: int | None = 0
        while offset is not None:
            page = queries.expand_messages(summary, offset=offset, limit=MESSAGES_AT_ONCE)
            for message in page.messages:
                text = text_of(tuple(stored.part for stored in message.parts))
                values = {"id": message.id, "seq": message.seq, "role": message.role, "text": text}
                plain = f"[{message.seq}] {message.role}: {printable(text)}\n"
                self.stdout.write(json.dumps(values) if options["json"] else plain)
            offset = page.next_offset

    def _cover(self, options: dict[str, Any]) -> None:
        found = {session_id: queries.cover(session_id) for session_id in _sessions(options)}
        lines = []
        for session_id, cover in found.items():
            wrong = {"missing": cover.missing, "twice": cover.twice, "out of order": cover.out_of_order}
            problems = [f"{name}: {', '.join(map(_span, spans))}" for name, spans in wrong.items() if spans]
            problems += [f"miscounted: {', '.join(cover.miscounted)}"] if cover.miscounted else []
            counts = f"{cover.messages:,} messages, {cover.verbatim:,} verbatim, {cover.summarised:,} summarised"
            lines.append("; ".join([f"{session_id}: {counts}", *(problems or ["each exactly once"])]))
        self._answer(
            {session_id: asdict(cover) | {"ok": cover.ok} for session_id, cover in found.items()},
            lines,
            options,
        )
        if failed := sum(not cover.ok for cover in found.values()):
            raise CommandError(f"{failed} of {len(found)} contexts do not stand for every message exactly once.")

    def _align(self, options: dict[str, Any]) -> None:
        waiting = {id: unaligned_summaries(load_session(id).id) for id in _sessions(options)}
        for summary_id in (summary_id for ids in waiting.values() for summary_id in ids):
            request_alignment(summary_id)
        self._answer(waiting, [f"{id}: {len(ids):,} summaries queued" for id, ids in waiting.items()], options)

    def _answer(self, values: Any, words: Iterable[str], options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(values, default=str, indent=2) if options["json"] else "\n".join(words))


def _sessions(options: dict[str, Any]) -> list[str]:
    if bool(options["sessions"]) == options["all"]:
        raise CommandError("Name the sessions, or say --all.", returncode=2)
    return list(dict.fromkeys(queries.summarised_sessions() if options["all"] else options["sessions"]))


def _span(span: Span) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}–{span[1]}"

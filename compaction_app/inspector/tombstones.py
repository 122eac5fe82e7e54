"""The tool outputs that a session's context has lost, each with why, and whether the model can still reach it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from compaction_app.queries import covering_summaries
from compaction_app.run_queries import runs_that_pruned
from mnesis_core.lineage import RunRecord
from mnesis_core.visible import excerpt
from sessions_app.conf import session_config
from sessions_app.inspecting import Inspected
from sessions_app.queries.tombstones import (
    Place,
    Tombstone,
    TombstoneTally,
    list_tombstones,
    tally_tombstones,
    tools_of_tombstones,
)
from sessions_app.rendering import format_characters, format_counted, show_invisible
from sessions_app.transcript import first_words

PAGE = 50
INPUT = 140
OUTPUT = 240
"""Characters of the first words."""
READS = "lcm_read"
"""The tool by which a model reads an original."""
TRIGGERS = {
    "soft": "the context was above its soft threshold",
    "hard": "the context did not fit any more",
    "manual": "somebody asked for a compaction",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTombstone:
    """One tombstone as the page shows it."""

    entry: Tombstone
    tool: str
    input: str
    first_words: str
    size: str
    tokens: str
    run: RunRecord | None
    """The compaction that pruned it, where the record says."""
    why: str
    summary_id: str
    """The summary that stands for its message now, if the message has left the context."""
    reach: str
    """Whether and how the model can still reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """A page of tombstones."""

    items: list[ShownTombstone]
    tally: TombstoneTally
    tools: list[str]
    more: str
    """The query of the next page; empty where there is none."""

    @property
    def words(self) -> dict[str, str]:
        """The numbers of all of them together, as words."""
        return {
            "count": format_counted(self.tally.count, "tool output"),
            "events": format_counted(self.tally.events, "compaction"),
            "tokens": format_counted(self.tally.tokens, "token"),
        }


def load_tombstones(about: Inspected, *, tool: str = "", part_id: str = "", before: Place | None = None) -> Tombstones:
    """A page of the tombstones of a session, the newest first; seven queries at the most."""
    found = list_tombstones(about.id, tool=tool, part_id=part_id, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    runs = runs_that_pruned(about.id, {entry.compacted_seq for entry in page}) if page else {}
    gone = [entry.message_seq for entry in page if not entry.is_in_context]
    summaries = covering_summaries(about.id, gone)
    can_read = READS in session_config(about.config).turn.tools
    return Tombstones(
        items=[
            shown_tombstone(
                entry, runs.get(entry.compacted_seq), summaries.get(entry.message_seq, ""), can_read=can_read
            )
            for entry in page
        ],
        tally=tally_tombstones(about.id),
        tools=[show_invisible(name) for name in tools_of_tombstones(about.id)],
        more=_more(page, tool) if len(found) > PAGE else "",
    )


def shown_tombstone(entry: Tombstone, run: RunRecord | None, summary_id: str, *, can_read: bool) -> ShownTombstone:
    """A tombstone in words; ``can_read``: the session's model is offered the tool that reads originals."""
    return ShownTombstone(
        entry=entry,
        tool=show_invisible(entry.tool_name) or "unnamed tool",
        input=excerpt(first_words(entry.input), INPUT),
        first_words=excerpt(entry.output, OUTPUT),
        size=format_characters(entry.characters),
        tokens=f"{entry.tokens:,}",
        run=run,
        why=TRIGGERS.get(run.trigger, "") if run else "",
        summary_id=summary_id,
        reach=_reach(entry, can_read=can_read),
    )


def _reach(entry: Tombstone, *, can_read: bool) -> str:
    seen = "The model sees a mark in its place" if entry.is_in_context else "The model sees a summary of that stretch"
    if can_read:
        return f"{seen}; {READS} with the part's id reads the original."
    return f"{seen}, and has no tool that reads the original: {READS} is not among its tools."


def _more(page: Sequence[Tombstone], tool: str) -> str:
    before = "-".join(map(str, page[-1].place))
    return urlencode({"tool": tool, "before": before} if tool else {"before": before})

"""What the session page shows of a message and of its parts, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.safestring import SafeString

from mnesis_core.record import UsageRecord
from sessions_app.relatives import Relative
from sessions_app.rendering import LongText, format_count, format_money


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPart:
    """One part as the page shows it."""

    id: str
    index: int
    kind: str
    """The part's type; ``file`` for a file, by reference or with its content."""
    label: str = ""
    file_id: str = ""
    """Of a file, where it can be opened."""
    detail: str = ""
    """Of a file: its kind and tokens."""
    content: LongText | None = None
    html: SafeString | None = None
    """Of a text that is short enough to be read as Markdown."""
    state: str = ""
    preview: str = ""
    """Of a tool call: its input in one line."""
    input: LongText | None = None
    output: LongText | None = None
    error: LongText | None = None
    whole_file: str = ""
    """The id of the file that has all of a long output or error."""
    late: LongText | None = None
    """What the tool answered after its call had been closed."""
    note: str = ""
    """What the person said who approved or refused the call."""
    asks: str = ""
    """Of a call that its turn waits for: ``approval`` or ``caller``."""
    launched: tuple[Relative, ...] = ()
    """The sub-agents of a tool call."""
    duration: str = ""
    running_since: datetime | None = None
    compacted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLive:
    """What a text of a running answer says so far."""

    index: int
    """Of the part that it becomes."""
    html: SafeString
    length: int
    """Code points of the text that this is drawn from: what comes after them goes on behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message as the page shows it."""

    id: str
    seq: int
    turn_id: str
    role: str
    model: str
    is_summary: bool
    created_at: datetime
    parts: tuple[ShownPart, ...]
    record_count: int
    """Imported records that are kept with this message and loaded when somebody opens them."""
    is_running: bool
    live: tuple[ShownLive, ...] = ()
    """Of one that runs, where it is asked for alone."""
    ending: str
    """What to say about an end that was not a good one: ``failed``, ``cancelled``, ``interrupted``, ``incomplete``,
    ``length``, ``passed_on`` to another model; empty otherwise."""
    error_code: str
    error_message: str
    usage: UsageRecord
    is_from_inbox: bool = False
    """Whether it joins messages of peers."""
    ends_turn: bool = False
    """Whether it is the last message of a turn that has ended."""

    @property
    def actions(self) -> list[str]:
        """What a person may do with it, as ``actions.js`` names it: what cannot apply is not offered."""
        if self.is_running:
            return []
        is_said = any(part.kind in ("text", "file") for part in self.parts)
        is_person = self.role == "user" and not self.is_from_inbox
        possible = {
            "copy": any(part.kind == "text" for part in self.parts),
            # What went wrong is asked again here; an answer that is there stays, and the other one goes into a fork.
            "retry": self.ends_turn and bool(self.ending),
            "retry-fork": self.ends_turn and not self.ending and self.role == "assistant",
            "edit": is_person and is_said,
            "fork": True,
            "link": True,
            "call": self.role == "assistant",
            "calls": self.role != "assistant",
        }
        return [name for name, is_possible in possible.items() if is_possible]

    @property
    def numbers(self) -> list[str]:
        """Tokens, cost and who said so, as far as they are known."""
        usage = self.usage
        if usage.tokens_input is None and usage.tokens_output is None and usage.cost_micros is None:
            return []
        tokens = f"{format_count(usage.tokens_input)} in, {format_count(usage.tokens_output)} out"
        return [text for text in (tokens, format_money(usage.cost_micros), usage.usage_source or "") if text]

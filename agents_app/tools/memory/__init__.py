"""Memory tools (LCM paper 2.4): the model reaches what has left its context, and every id that it is shown.

``lcm_expand`` is for sub-agents only, which have a context of their own to fill (decision 23).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from pydantic import AliasChoices, Field

from agents_app.tools.memory import grepping, reading
from agents_app.tools.memory.reach import Found, find, is_handle, load_family, wanted_id
from agents_app.tools.registry import Output, ToolContext, ToolScope, tool
from mnesis_core.errors import NotFound
from mnesis_core.files.lines import Mode as LineMode
from sessions_app.search.ranked import MOST_AROUND
from sessions_app.search.search import read_filters

Answer = TypeVar("Answer", bound=Output)


@tool(read_only=True)
def lcm_grep(
    context: ToolContext,
    pattern: Annotated[str, Field(validation_alias=AliasChoices("pattern", "q"))],
    mode: Literal["ranked", "text", "regex"] = "ranked",
    scope: Literal["history", "all", "messages", "tools", "summaries", "files"] = "history",
    summary_id: str = "",
    file_id: str = "",
    since: str = "",
    until: str = "",
    speaker: str = "",
    tool: str = "",
    file: str = "",
    branch: int | None = None,
    compacted: bool | None = None,
    around: int | None = None,
    limit: int | None = None,
    max_tokens: int | None = None,
    cursor: str = "",
) -> str:
    """Search the whole history of this conversation, also what is no longer in context; or what its files hold.

    Mode ranked takes a question, as a person asks it, and returns the passages that answer it best. Mode text finds all
    the words of the pattern; "in quotes" side by side; begin* of words. Mode regex takes a regular expression (RE2).
    #418 is the handle of a message, which lcm_read and lcm_describe take as an id. What was said on another branch of
    the conversation is found too, and marked as such.

    Narrow it by since and until (2026-11-26, or a time), speaker (a name, user or assistant), tool (its name), file (a
    part of its path), branch, compacted (true: only what has left the context), scope (history is all), summary_id.
    around is how many messages are shown on both sides of a hit. An answer has at most max_tokens (1,000,
    and 200 for each hit of a larger limit); go on with its cursor.

    Scope files searches the contents of files line by line, all of them or the one of file_id: lines that have all the
    words, also as parts of longer ones, in any case. Returns them with their numbers; lcm_read reads around them with first_line.
    """
    family = load_family(context)
    if scope == "files" or file_id.strip():
        lines: LineMode = "regex" if mode == "regex" else "text"
        most = grepping.PAGE if limit is None else limit
        return grepping.grep_files(family, pattern, mode=lines, file_id=wanted_id(file_id), limit=most, cursor=cursor)
    filters = read_filters(
        since=since, until=until, speaker=speaker, tool=tool, file=file, branch=branch, compacted=compacted
    )
    asked = grepping.Asked(
        pattern=pattern,
        mode=mode,
        kind="all" if scope == "history" else scope,
        summary_id=summary_id,
        filters=filters,
        limit=limit,
        max_tokens=max_tokens,
        around=None if around is None else min(max(around, 0), MOST_AROUND),
        cursor=cursor,
        turn_id=context.turn_id,
    )
    return grepping.grep(family, asked)


@tool(read_only=True)
def lcm_describe(context: ToolContext, id: str, offset: int = 0) -> str:
    """Describe what an id of this conversation names: sum_, file_, msg_, part_, run_ (compaction), turn_, call_, sess_, #418.

    Of a summary: what it stands for, what stands for it, and its text. Of a list of files: those from offset on. Of a
    file: its kind and size, what it holds, its other versions, and where it is spoken of.
    """
    return _answer(context, id, lambda found: reading.describe(found, offset=offset))


@tool(read_only=True)
def lcm_read(context: ToolContext, id: str, offset: int = 0, limit: int = reading.PAGE, first_line: int = 0) -> Output:
    """Read the original of a message (msg_ or #418), a part or tool output (part_), a file (file_) or a summary (sum_).

    Whole, as it was written, also where the context has it shortened or only a mark of it (then the tool call's own id
    will do); limit characters from offset on, of a file limit bytes. A message comes with the ids of the ones before and
    after it. A file is also read by lines with their numbers: from first_line (the first is 1) on, limit characters of them.
    A picture or a PDF is shown again.
    """

    def read(found: Found) -> Output:
        shown = None if offset or first_line else reading.show_again(found, context)
        return shown or reading.read(found, offset=offset, limit=limit, first_line=first_line)

    return _answer(context, id, read)


@tool(read_only=True)
def lcm_facts(context: ToolContext, query: str = "", subject: str = "", at: str = "") -> str:
    """Look up facts of this conversation: preferences, decisions, constraints, what something is, open tasks, instructions.

    Each comes with its date and with the words that it rests on; #418 is the handle of their message, which lcm_read
    takes. query narrows them by words, subject by what they are about. They are those that hold now, or with at
    (2026-11-26, or a time) those that held then.
    """
    return reading.tell_facts(context.session_id, query=query, subject=subject, at=at)


@tool(read_only=True, scope=ToolScope.SUB_AGENT)
def lcm_expand(context: ToolContext, summary_id: str, cursor: int = 0) -> str:
    """Read what a summary (sum_) was made of, one step down: messages, or summaries to expand further.

    For sub-agents only, within an allowance of tokens: lcm_grep with the summary's id finds a detail for less.
    """
    return reading.expand_for_sub_agent(context, summary_id, cursor=cursor)


def _answer(context: ToolContext, text: str, tell: Callable[[Found], Answer]) -> Answer | str:
    family, id = load_family(context), wanted_id(text)
    try:
        return tell(find(family, id))
    except NotFound:
        # No id in a context is a dead end: where nothing has it, the tool answers where it was said.
        hits = [] if is_handle(id) else grepping.find_mentions(family, id)
        if not hits:
            raise
        head = "Nothing that is kept here has this id; it is only named in:"
        return "\n".join([head, *grepping.describe_hits(hits)])

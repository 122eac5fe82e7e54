"""Whether what a model wrote is of use as a summary. Nothing is taken on trust."""

from __future__ import annotations

import re

from mnesis_core.compaction.prompts import MARKER
from mnesis_core.footers import NO_IDS, Named, without_footer
from mnesis_core.tokens import estimate_text

LONGEST_REFUSAL = 1_500
"""Characters: what is longer says something beside the refusal."""
SHORTEST_ECHO = 200
"""Characters: a shorter text may happen to stand in its source word by word."""

_REFUSAL = re.compile(
    r"\W*(?:(?:i['\u2019]?m|i am) (?:really |very )?sorry|sorry|i apologi[sz]e|apologies|unfortunately)?\W{0,3}(?:but )?"
    r"(?:as an ai\b[^,.]{0,40},? ?)?"
    r"(?:i|we) (?:can['\u2019]?t|cannot|can not|won['\u2019]?t|will not|must decline|do not|don['\u2019]?t"
    r"|am (?:not able|unable)|['\u2019]?m (?:not able|unable))\b"
    r"[^.\n]{0,60}\b(?:help|assist|summari[sz]e|comply|provide|process|do (?:that|this)|fulfil+|continue|answer|access|see)\b",
    re.IGNORECASE,
)
_LEAKED = re.compile(rf"{MARKER}|</?(?:conversation|summaries)>|\{{\{{(?:source|target)\}}\}}", re.IGNORECASE)
_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)
_TOOL_CALL = re.compile(
    r"\s*(?:```\w*\s*)?(?:</?(?:tool_calls?|function_calls?|invoke)\b|\[TOOL_CALLS\]|<\|(?:tool|python))", re.IGNORECASE
)
_OPEN_THINKING = re.compile(r"\s*</?(?:think|thinking|reasoning)>", re.IGNORECASE)


def cleaned(text: str) -> str:
    """A reply without the thinking that some models write in front of it."""
    return _THINKING.sub("", text, count=1).strip() if _THINKING.match(text) else text.strip()


def judge(text: str, *, source: str, source_tokens: int, target: int, named: Named = NO_IDS) -> str | None:
    """Why ``text``, its footer included, may not stand for its source, or ``None`` when it may.

    ``empty``, ``refusal``, ``reasoning``, ``tool_call`` (written out as text), ``leaked_prompt``, ``echo`` (it
    stands in ``source`` word by word), ``not_smaller`` (than ``source_tokens``, footer included), ``too_long``
    (its body is above ``target`` tokens), ``missing_summary_ids``, ``missing_file_ids``.
    """
    body = without_footer(text)
    reason = _useless(body) or ("echo" if len(body) >= SHORTEST_ECHO and body in source else None)
    if reason is not None:
        return reason
    if estimate_text(text) >= source_tokens:
        return "not_smaller"
    if estimate_text(body) > target:
        return "too_long"
    if not all(name in text for name in named.summaries):
        return "missing_summary_ids"
    return None if all(name in text for name in named.file_entries) else "missing_file_ids"


def _useless(body: str) -> str | None:
    if not re.search(r"\w", body):
        return "empty"
    if len(body) <= LONGEST_REFUSAL and _REFUSAL.match(body):
        return "refusal"
    if _OPEN_THINKING.match(body):
        return "reasoning"
    if _TOOL_CALL.match(body):
        return "tool_call"
    return "leaked_prompt" if _LEAKED.search(body) else None

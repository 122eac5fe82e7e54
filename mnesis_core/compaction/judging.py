"""Whether what a model wrote is of use as a summary. Nothing is taken on trust."""

from __future__ import annotations

import re
from collections.abc import Collection

from mnesis_core.compaction.prompts import MARKER
from mnesis_core.file_ids import without_file_ids
from mnesis_core.tokens import estimate_text

LONGEST_REFUSAL = 1_500
"""Characters: what is longer says something beside the refusal."""

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
_OPEN_THINKING = re.compile(r"\s*</?(?:think|thinking|reasoning)>", re.IGNORECASE)


def cleaned(text: str) -> str:
    """A reply without the thinking that some models write in front of it."""
    return _THINKING.sub("", text, count=1).strip() if _THINKING.match(text) else text.strip()


def judge(text: str, source_tokens: int, limit: int, required_file_ids: Collection[str] = ()) -> str | None:
    """Why ``text`` may not stand for its source, or ``None`` when it may.

    ``empty``, ``refusal``, ``reasoning``, ``leaked_prompt``, ``too_long`` (its body is above ``limit``
    tokens), ``not_smaller`` (than ``source_tokens``, footer included), ``missing_file_ids``.
    """
    body = without_file_ids(text)
    if not re.search(r"\w", body):
        return "empty"
    if len(body) <= LONGEST_REFUSAL and _REFUSAL.match(body):
        return "refusal"
    if _OPEN_THINKING.match(body):
        return "reasoning"
    if _LEAKED.search(body):
        return "leaked_prompt"
    if estimate_text(text) >= source_tokens:
        return "not_smaller"
    if estimate_text(body) > limit:
        return "too_long"
    return None if all(file_id in text for file_id in required_file_ids) else "missing_file_ids"

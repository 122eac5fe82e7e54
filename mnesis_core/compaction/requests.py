"""What a model that summarises a span or describes a file is asked, and what its reply must keep to.

Prompts are text files with a version, and a site may replace any of them. A question is kept as a manifest from which
the same payload can be made again. Nothing in a reply is taken on trust.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from mnesis_core.compaction.dag import runs_of
from mnesis_core.compaction.transcript import FORM, piece_limit, summary_pieces, text_pieces, transcript_pieces
from mnesis_core.config import Config
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.context.fitting import Budget
from mnesis_core.errors import ModelTimeout
from mnesis_core.files.detection import fitting
from mnesis_core.files.references import NO_IDS, Named, without_footer
from mnesis_core.files.source import encoding_of, shown
from mnesis_core.llm.interface import ModelSpec, Reply, Request, Usage
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import StoredMessage
from mnesis_core.text import LONGEST_CHARACTER, character_start, printable, quote, quote_file

SHIPPED_FOLDER = Path(__file__).parent / "prompts"
MARKER = "MNESIS-SUMMARISE"  # Every system text has it, so that a model or a gateway knows what is asked.
JOINT = "\n\n"
REPLY_SLACK = 1_024  # tokens beside the summary that a call may write
SMALLEST_TARGET = 48  # tokens
LARGEST_SHARE = 0.35  # of the source: what level 1 is asked for at most
# Summaries of full length that have room below the target: with fewer, each compaction would have to merge some.
SIDE_BY_SIDE = 7
NO_USAGE = Usage(input_tokens=0, output_tokens=0)
CUT_OFF = frozenset({"length", "max_tokens"})  # finish reasons of an answer that is not whole
LONGEST_REFUSAL = 1_500  # Characters: a longer text says something beside the refusal.
LOSSY = "lossy"  # The reason of an attempt that loses much of its source; it may stand for it all the same.
KEEPS_NO_MORE = "keeps_no_more"  # The reason of a second attempt that keeps no more than the first.
SHORTEST_ECHO = 200  # Characters: a shorter text may stand in its source word by word by chance.

LONGEST_NAME = 60  # characters of a speaker's name

# Kinds of files that are prose. Only those whose bytes are the text: anything else would have to be parsed again, by a
# library that may read it differently by then, to say what a model saw.
KINDS = frozenset({"text", "markdown"})
READ_TOKENS = 8_000
READ_BYTES = 131_072  # No text of READ_TOKENS is longer.
TARGET_TOKENS = 300  # What the model is asked to keep to. A shorter text is not asked about.
LONGEST_TOKENS = 2 * TARGET_TOKENS
LINE_CHARACTERS = 1_600  # The rest of a summary is for what was counted.

_USER = "\n\n# User\n\n"
_MISSING = (
    "A first draft left out what the lines [missing] below quote from the source. Write the whole summary anew so that it"
    " says each of them too, word for word where they are short, within the same target."
)
_SHAPE = re.compile(r"version: ([\w.-]{1,16})\n\n# System\n\n(.+?)\n\n# User\n\n(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPrompt:
    version: str
    text: str
    system: str
    user: str  # with ``{{target}}`` and ``{{source}}``


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    level1: SummaryPrompt
    level2: SummaryPrompt
    condense: SummaryPrompt
    condense2: SummaryPrompt
    prose: SummaryPrompt


def read_prompt(path: Path) -> SummaryPrompt:
    """:raises OSError: the file cannot be read.

    :raises ValueError: it is not UTF-8, or does not have the schema of a prompt.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8") from error
    return parse_prompt(path.stem, text, where=str(path))


def parse_prompt(name: str, text: str, *, where: str = "the text") -> SummaryPrompt:
    """Return the prompt in a text, which may be one that was kept with a call of an older version.

    :raises ValueError: it does not have the schema of a prompt.
    """
    found = _SHAPE.fullmatch(text)
    if not found or MARKER not in found[2] or found[3].count("{{source}}") != 1 or "{{target}}" not in found[3]:
        raise ValueError(
            f"{where} is not a prompt: it needs a line 'version: …', a part '# System' with {MARKER} in it, "
            "and a part '# User' with {{target}} and, once, {{source}}"
        )
    return SummaryPrompt(version=f"{name}.{found[1]}", text=text, system=found[2], user=found[3].rstrip())


def read_prompts(folder: Path) -> Prompts:
    """Return the shipped prompts, replaced by those of the same names in ``folder``.

    :raises OSError: the folder or a file cannot be read.
    :raises ValueError: a file does not have a prompt's name or schema, or has the version of the shipped prompt but not
        its text: a summary's version must tell what was asked.
    """
    known = {field.name for field in fields(Prompts)}
    changed = {}
    for path in sorted(folder.iterdir()):
        if path.suffix != ".md":
            continue
        if path.stem not in known:
            raise ValueError(f"{path} does not replace a prompt; the prompts are: {', '.join(sorted(known))}")
        changed[path.stem] = read_prompt(path)
        shipped: SummaryPrompt = getattr(SHIPPED, path.stem)
        if changed[path.stem].version == shipped.version and changed[path.stem] != shipped:
            raise ValueError(f"{path} has the shipped prompt's version but another text; give it another version")
    return replace(SHIPPED, **changed)


def naming_speakers(prompts: Prompts, labels: Mapping[str, str]) -> Prompts:
    """Return prompts that tell, above a transcript, who its user and its assistant are, as far as labels say so.

    The names are kept with the text of a call's prompt, so it is rebuilt whatever the labels say by then.
    """
    names = {role: _name(labels.get(f"speaker_{role}", "")) for role in ("user", "assistant")}
    said = "; ".join(f"{role} is {name}" for role, name in names.items() if name)
    if not said:
        return prompts

    def named(prompt: SummaryPrompt) -> SummaryPrompt:
        before, source, after = prompt.text.rpartition("{{source}}")
        name = prompt.version.partition(".")[0]
        return parse_prompt(name, f"{before}[speakers] {said}\n{source}{after}")

    return replace(prompts, level1=named(prompts.level1), level2=named(prompts.level2))


def naming_missing(prompt: SummaryPrompt, texts: Sequence[str], *, room: int) -> SummaryPrompt:
    """Return a prompt that quotes what a first draft had lost, as data like its source, in at most ``room`` tokens.

    It is kept with the text of the call's prompt, so it is rebuilt like any other.
    """
    lines = []
    for text in texts:
        line = f"[missing] {_plain(text)}\n"
        room -= estimate_text(line)
        if room < 0:
            break
        lines.append(line)
    system, mark, user = prompt.text.partition(_USER)
    before, source, after = user.rpartition("{{source}}")
    name = prompt.version.partition(".")[0]
    return parse_prompt(name, f"{system}{mark}{_MISSING}\n\n{before}{''.join(lines)}{source}{after}")


def _plain(text: str) -> str:
    """Return words as data on one line, which are neither a tag nor a placeholder."""
    return quote(" ".join(re.sub(r"[{}]", " ", printable(text)).split()))


def _name(label: str) -> str:
    """Return a name as data that is neither a tag nor a placeholder and cannot end before its line does."""
    return quote(" ".join(re.sub(r"[{}\[\];:]", " ", printable(label)).split())[:LONGEST_NAME])


SHIPPED = Prompts(**{field.name: read_prompt(SHIPPED_FOLDER / f"{field.name}.md") for field in fields(Prompts)})


# Whether a model's text is of use as a summary

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
    """Return a reply without the thinking that some models write in front of it."""
    return _THINKING.sub("", text, count=1).strip() if _THINKING.match(text) else text.strip()


def judge(text: str, *, source: str, source_tokens: int, target: int, named: Named = NO_IDS) -> str | None:
    """Return why ``text``, its footer included, may not stand for its source, or ``None`` when it may.

    ``empty``, ``refusal``, ``reasoning``, ``tool_call`` (written out as text), ``leaked_prompt``, ``echo`` (it stands
    in ``source`` word by word), ``not_smaller`` (than ``source_tokens``, footer included), ``too_long`` (its body is
    above ``target`` tokens), ``missing_summary_ids``, ``missing_file_ids``.
    """
    body = without_footer(text)
    against = (
        ("empty", not re.search(r"\w", body)),
        ("refusal", len(body) <= LONGEST_REFUSAL and _REFUSAL.match(body)),
        ("reasoning", _OPEN_THINKING.match(body)),
        ("tool_call", _TOOL_CALL.match(body)),
        ("leaked_prompt", _LEAKED.search(body)),
        ("echo", len(body) >= SHORTEST_ECHO and body in source),
        ("not_smaller", estimate_text(text) >= source_tokens),
        ("too_long", estimate_text(body) > target),
        ("missing_summary_ids", not all(name in text for name in named.summaries)),
        ("missing_file_ids", not all(name in text for name in named.file_entries)),
    )
    return next((reason for reason, holds in against if holds), None)


# One question to a summarising model: what it reads, how it is asked, and how it is rebuilt from the record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    prompt: SummaryPrompt
    request: Request

    @property
    def tokens(self) -> int:
        return sum(estimate_text(message["content"]) for message in self.request.payload["messages"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(_Question):
    level: int
    target: int  # tokens that the summary is asked to keep to
    limit: int  # tokens of a piece: with ``piece``, what is needed to cut the same one again
    piece: int
    pieces: int
    # The attempts whose drafts are merged, in order; none when it reads what the summary stands for.
    merges: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    level: int
    accepted: bool
    # A reason of ``judge`` or ``spending``, ``tool_call``, ``cut_off``, ``timeout``, ``keeps_no_more`` or a model's error
    # code; empty when accepted, or ``lossy``.
    reason: str = ""
    usage: Usage = NO_USAGE
    piece: int = 1
    pieces: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    try_id: str  # The recorder's id of this attempt, for the question that merges its draft.
    attempt: Attempt
    reply: Reply | None


Judge = Callable[[Reply], str | None]  # Return why a reply may not be a summary, or None when it may.


class Recorder(Protocol):
    """Ask a model and keep each attempt; ``excerpt`` keeps one at level 3 and returns its id."""

    async def ask(self, question: Question, judge: Judge) -> Answer: ...

    async def excerpt(self, attempt: Attempt, text: str) -> str: ...


def attempt_of(question: Question, reason: str | None, usage: Usage = NO_USAGE) -> Attempt:
    return Attempt(
        level=question.level,
        accepted=reason in (None, LOSSY),
        reason=reason or "",
        usage=usage,
        piece=question.piece,
        pieces=question.pieces,
    )


def failure_of(reply: Reply) -> str | None:
    """Return why a reply has no text to judge: ``timeout``, an error's code, ``tool_call``, ``cut_off``, or ``None``."""
    if isinstance(reply.error, ModelTimeout):
        return "timeout"
    if reply.error is not None:
        return reply.error.code
    if reply.tool_calls:
        return "tool_call"
    return "cut_off" if reply.finish_reason in CUT_OFF else None


def reply_limit(spec: ModelSpec, target: int) -> int:
    """Return how many tokens a reply may take that is asked to keep to ``target``: some models think first."""
    wanted = min(target + REPLY_SLACK, max(target, spec.context_window // 4))
    return min(wanted, spec.max_output_tokens) if spec.max_output_tokens > 0 else wanted


def longest_summary(source_tokens: int, config: Config, budget: Budget) -> int:
    """Return the tokens that a level 1 summary of a span is asked to keep to."""
    share = min(int(source_tokens * LARGEST_SHARE), budget.target // SIDE_BY_SIDE)
    return max(SMALLEST_TARGET, min(config.compaction.summary_target_tokens, share))


def payload_of(prompt: SummaryPrompt, source: str, target: int) -> dict[str, Any]:
    """Return a request's payload; ``source`` is already quoted."""
    before, after = prompt.user.replace("{{target}}", str(target)).split("{{source}}")
    asked = f"{before}{printable(source)}{after}"
    return {"messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": asked}]}


def question_manifest(question: Question, sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return JSON rows from which the same payload can be made again.

    ``sources`` are the rows of what the summary stands for (``selection.source_rows``).
    """
    prompt = {"kind": "prompt", "id": question.prompt.version, "target": question.target}
    piece = {"kind": "piece", "number": question.piece, "count": question.pieces, "limit": question.limit, "form": FORM}
    read = [{"kind": "try", "id": try_id} for try_id in question.merges] or sources
    return [prompt, piece, *map(dict, read)]


def form_of(piece: Mapping[str, Any]) -> int:
    """Return the form of the transcript that a manifest's row ``piece`` was cut from; rows of the first name none."""
    form = piece.get("form")
    return form if isinstance(form, int) else 1


def messages_row(messages: Sequence[StoredMessage]) -> dict[str, Any]:
    """Return the manifest row of a span, with its messages' ``seq`` as (first, last), since there may be 100,000."""
    return {"kind": "messages", "ranges": [list(span) for span in runs_of([message.seq for message in messages])]}


def rebuild_question(
    manifest: Sequence[Mapping[str, Any]],
    prompt: SummaryPrompt,
    *,
    messages: Sequence[StoredMessage] = (),
    summaries: Sequence[SummaryEntry] = (),
    drafts: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the payload of a stored question again, from what its manifest names, in that order.

    :raises ValueError: the manifest is not one of a question, or what it names does not reach to its piece.
    """
    rows = {row["kind"]: row for row in manifest}
    if not {"prompt", "piece"} <= rows.keys():
        raise ValueError("the manifest names no prompt or no piece")
    limit, number, form = rows["piece"]["limit"], rows["piece"]["number"], form_of(rows["piece"])
    if "try" in rows:
        pieces = text_pieces(JOINT.join(drafts), limit)
    else:
        pieces = summary_pieces(summaries, limit) if summaries else transcript_pieces(messages, limit, form=form)
    if not 1 <= number <= len(pieces):
        raise ValueError(f"there is no piece {number} of what the manifest names, only {len(pieces)}")
    return payload_of(prompt, pieces[number - 1], rows["prompt"]["target"])


# One question about the beginning of a file of prose


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion(_Question):
    content_id: str
    length: int  # bytes of the content that are read
    beginning: str  # what they say, quoted as data

    @property
    def manifest(self) -> list[dict[str, Any]]:
        return [
            {"kind": "prompt", "id": self.prompt.version, "target": TARGET_TOKENS},
            {"kind": "file", "content_id": self.content_id, "offset": 0, "bytes": self.length},
        ]


def question_about(
    content_id: str, data: bytes, *, prompt: SummaryPrompt, spec: ModelSpec, config: Config
) -> FileQuestion | None:
    """Return what to ask about a content that begins with ``data``, or ``None`` where it is too short to be worth it."""
    limit = min(READ_TOKENS, piece_limit(spec, config))
    length = _whole(data, min(len(data), READ_BYTES))
    text = _text(data[:length])
    while length and (tokens := estimate_text(text)) > limit:
        # A little below the proportion, so that uneven texts do not take many steps.
        length = _whole(data, min(length - 1, int(length * limit / tokens * 0.98)))
        text = _text(data[:length])
    if estimate_text(text) <= TARGET_TOKENS:
        return None
    payload = payload_of(prompt, text, TARGET_TOKENS)
    request = Request(payload=payload, max_output_tokens=reply_limit(spec, TARGET_TOKENS))
    return FileQuestion(content_id=content_id, length=length, beginning=text, prompt=prompt, request=request)


def rebuild_file_question(
    manifest: Sequence[Mapping[str, Any]], prompt: SummaryPrompt, *, read: Callable[[str, int, int], bytes]
) -> dict[str, Any]:
    """Return the payload of a stored question again; ``read`` gives the bytes of a content, from an offset on.

    :raises ValueError: the manifest is not one of a question, or the content is shorter than it says.
    """
    rows = {row["kind"]: row for row in manifest}
    if not {"prompt", "file"} <= rows.keys():
        raise ValueError("the manifest names no prompt or no file")
    file = rows["file"]
    if file["bytes"] > READ_BYTES:
        raise ValueError(f"the manifest names more than the {READ_BYTES:,} bytes that are read of a file")
    data = read(file["content_id"], file["offset"], file["bytes"])
    if len(data) != file["bytes"]:
        raise ValueError(f"the content has {len(data):,} of the {file['bytes']:,} bytes that the manifest names")
    return payload_of(prompt, _text(data), rows["prompt"]["target"])


def problem_of(reply: Reply, beginning: str) -> str:
    """Return why a reply may not describe the text, a reason of ``failure_of`` or ``judge``, or an empty text."""
    if failure := failure_of(reply):
        return failure
    tokens = estimate_text(beginning)
    return judge(cleaned(reply.text), source=beginning, source_tokens=tokens, target=LONGEST_TOKENS) or ""


def with_description(ordinary: str, reply: Reply, *, alias: str, length: int, size: int) -> str:
    """Return an ordinary summary below a line with a model's description, the model and the bytes that it read."""
    part = f"all {size:,} bytes" if length >= size else f"the first {length:,} of {size:,} bytes"
    said = shown(cleaned(reply.text), characters=LINE_CHARACTERS)
    return fitting([f"Summary by the model {shown(alias)} of {part}: {said}", *ordinary.splitlines()])


def _text(data: bytes) -> str:
    return quote_file(data.decode(encoding_of(data[:LONGEST_CHARACTER]), "replace"))


def _whole(data: bytes, length: int) -> int:
    """Return ``length``, or as much less as cuts no character."""
    if length == len(data):
        return length
    encoding = encoding_of(data[:LONGEST_CHARACTER])
    if encoding.startswith("utf-8"):
        return character_start(data, length)
    return length - length % (2 if encoding == "utf-16" else 4)

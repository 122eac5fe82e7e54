"""How many tokens a text has, estimated offline and fast, and how a model's own counts correct the estimate.

The estimate counts classes of characters and the seams between them (where words start, ``camelCase``, runs of digits),
weighted so that the sum lies between OpenAI's cl100k and o200k encodings: within about 8 % on English, code, JSON and
tool output, 15 % on Chinese, Japanese and Korean. Every count is one scan in C, so a megabyte takes some milliseconds.
It never shrinks when text is appended.
"""

from __future__ import annotations

import re
import string
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from math import ceil
from typing import Any, assert_never

from mnesis_core.messages import (
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    MediaPart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    UnknownPart,
)
from mnesis_core.values import dataclass

MESSAGE_FRAMING = 4  # role and delimiters beside a message's text
TOOL_FRAMING = 8  # ids and a second message's framing beside the text of a tool call and its result
MEDIA_TOKENS = 64  # the block that stands for a picture, a sound or a document, beside its name and its caption
MOST_CHARACTERS_PER_TOKEN = 20  # More than any text has: a run of spaces comes to 17.
SHORT = 80  # characters
MOST_TOKENS = 2**53

SMALLEST_RATIO, LARGEST_RATIO = 0.5, 3.0  # A provider that claims to count beyond these is not believed.
# The largest ratio learnt from a refusal of too long a prompt. Asking the same again would gain nothing.
LARGEST_REFUSED = 8.0
GROWTH = 1.4  # How much the ratio is raised above the least that explains a refusal without a usable number.
SMALLEST_WINDOW = 512  # A provider that claims to take fewer tokens is not believed.
NEWEST_WEIGHT = 0.2  # the least weight of the newest report
LARGEST_ERROR = 10.0  # Larger errors of an estimate count as this.
SMALLEST_CHANGE = 0.01  # A smaller change of a model's shared ratio is not worth a write.

# Fitted by non-negative least squares on prose, documentation, code in several languages, JSON, agent
# transcripts, logs, base64, hexadecimal and the interface texts of eighteen languages.
_WORD_START = 0.495
_NUMBER_WEIGHTS: tuple[tuple[bytes, float], ...] = (
    (b" D", 1.9),  # a number starts
    (b"DDD", 0.1),
)
_ASCII_WEIGHTS: tuple[tuple[bytes, float], ...] = (
    (b"l", 0.138),
    (b"U", 0.138),
    (b"lU", 1.1),
    (b"UU", 0.163),
    (b"p", 0.409),
    (b"n", 0.3),
    (b"ns", 0.522),
    (b"ss", 0.119),
    (b"z", 1.2),
)
# Classes of characters beyond ASCII: the first bytes that they have in UTF-8, up to the last one not included, and what
# a character weighs.
_OTHER_CLASSES: tuple[tuple[bytes, int, int, float], ...] = (
    (b"a", 0xC2, 0xC4, 1.65),  # Latin-1
    (b"e", 0xC4, 0xCE, 0.63),  # other Latin
    (b"g", 0xCE, 0xD0, 0.79),  # Greek
    (b"c", 0xD0, 0xD4, 0.46),  # Cyrillic
    (b"h", 0xD4, 0xD8, 0.88),  # Armenian, Hebrew
    (b"r", 0xD8, 0xE0, 0.66),  # Arabic and its neighbours
    (b"i", 0xE0, 0xE1, 0.88),  # Indic, Thai
    (b"x", 0xE1, 0xE2, 0.63),  # Vietnamese and polytonic Latin, Georgian and others
    (b"y", 0xE2, 0xE3, 1.68),  # typography, symbols, box drawing
    (b"k", 0xE3, 0xE4, 0.83),  # kana
    (b"H", 0xE4, 0xEA, 1.08),  # Han
    (b"G", 0xEA, 0xEE, 1.0),  # Hangul
    (b"w", 0xEE, 0xF0, 1.68),  # full-width forms, private use
    (b"m", 0xF0, 0xF8, 1.97),  # emoji and rare planes
)
_OTHER_WEIGHTS = tuple((name, weight) for name, _, _, weight in _OTHER_CLASSES)
_MEMBERS = {
    b"s": b" \t",
    b"n": b"\n\r",
    b"d": string.digits.encode(),
    b"U": string.ascii_uppercase.encode(),
    b"l": string.ascii_lowercase.encode(),
    b"p": string.punctuation.encode(),
    **{name: bytes(range(first, end)) for name, first, end, _ in _OTHER_CLASSES},
}
_CONTINUATION = bytes(range(0x80, 0xC0))

# One letter for every byte that can begin a character of UTF-8
_CLASSES = bytes(next((ord(name) for name, own in _MEMBERS.items() if byte in own), ord("z")) for byte in range(256))
_LETTERS = bytes(ord("L") if chr(byte) in "lU" else 0x20 for byte in range(256))
_DIGITS = bytes(ord("D") if chr(byte) == "d" else 0x20 for byte in range(256))


def estimate_text(text: str) -> int:
    """Return the tokens of ``text``, 0 only for the empty text. Takes lone surrogates and NUL."""
    return _estimate_short(text) if len(text) < SHORT else _estimate(text)


def _estimate(text: str) -> int:
    if not text:
        return 0
    is_ascii = text.isascii()
    raw = text.encode() if is_ascii else text.encode("utf-8", "surrogatepass")
    # The leading line break lets a word or number at the very start count as a start.
    classes = b"n" + raw.translate(_CLASSES, b"" if is_ascii else _CONTINUATION)
    total = classes.translate(_LETTERS).count(b" L") * _WORD_START + _weigh(classes, _ASCII_WEIGHTS)
    if b"d" in classes:
        total += _weigh(classes.translate(_DIGITS), _NUMBER_WEIGHTS)
    if not is_ascii:
        total += _weigh(classes, _OTHER_WEIGHTS)
    return max(1, ceil(total - 0.3))


_estimate_short = lru_cache(maxsize=4096)(_estimate)


def _weigh(classes: bytes, weights: tuple[tuple[bytes, float], ...]) -> float:
    # To look for one byte takes a hundredth of the time of counting pairs, and most texts lack most classes.
    return sum(
        classes.count(pattern) * weight
        for pattern, weight in weights
        if pattern[-1] in classes and pattern[0] in classes
    )


def characters_within(text: str, limit: int, *, from_end: bool = False) -> int:
    """Return how many characters of one end of ``text`` stay within ``limit`` tokens: nearly the most there can be."""
    if limit <= 0:
        return 0
    count = min(len(text), limit * MOST_CHARACTERS_PER_TOKEN)
    while count and (tokens := estimate_text(text[-count:] if from_end else text[:count])) > limit:
        # A little below the proportion, so that uneven texts do not take many steps.
        count = min(count - 1, int(count * limit / tokens * 0.98))
    return count


def estimate_part(part: Part) -> int:
    """Return the tokens of everything a part holds, whether or not it is sent to a model (reasoning counts too).

    A picture, a sound or a document counts as the block that stands for it, since that is what is sent.
    """
    match part:
        case TextPart() | ReasoningPart() | DataPart() | RefusalPart():
            return estimate_text(part.text)
        case ToolPart() | ProviderToolPart():
            return estimate_call(part) + estimate_text(part.output or "") + estimate_text(part.error or "")
        case MediaPart():
            return MEDIA_TOKENS + estimate_text(f"{part.name} {part.source}".strip()) + estimate_text(part.caption)
        case ProviderPart() | UnknownPart():
            return estimate_text(part.data)
        case CitationPart():
            return estimate_text("\n".join(filter(None, (part.text, part.title, part.url, part.data))))
        case FileRefPart():
            return TOOL_FRAMING + estimate_text(f"{part.file_id} {part.path}") + estimate_text(part.exploration_summary)
        case PatchPart():
            return estimate_text(part.unified_diff)
        case CompactionMarkerPart() | StepStartPart() | StepFinishPart():
            return 0
        case _:
            assert_never(part)


def estimate_call(part: ToolPart | ProviderToolPart) -> int:
    return TOOL_FRAMING + estimate_text(part.tool_name) + estimate_text(part.input)


def estimate_message(parts: tuple[Part, ...]) -> int:
    return MESSAGE_FRAMING + sum(map(estimate_part, parts))


# The numbers in a provider's words when it refuses a prompt as too long

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|maximum (?:supported )?(?:prompt|input|model|sequence) length"
    r"|(?:prompt|input) (?:is )?too (?:long|large)|too many (?:input )?tokens|input token count|model token limit"
    r"|max_new_tokens|must have less than \d+ tokens|input length should be|reduce the length of the (?:messages|input|prompt)",
    re.IGNORECASE,
)


def _all(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Compile patterns in which ``#`` is a number. The first of several that match counts."""
    return tuple(re.compile(pattern.replace("#", r"(\d[\d,]*)"), re.IGNORECASE) for pattern in patterns)


# Each is what one provider or server writes; the tests name them.
_LIMITS = _all(
    r"context length (?:is only|of only|is|of) \(?#",
    r"context length \(#",
    r"context limit: [\d,]+ \+ [\d,]+ > #",
    r"context size (?:is |\()#",
    r"with # maximum context",
    r"> # maximum",
    r"maximum number of tokens allowed \(?#",
    r"model token limit: #",
    r"maximum (?:supported )?(?:prompt|input|model|sequence) length (?:is just|is|of) #",
    r"max_new_tokens\W+ must be <= #",
    r"must have less than # tokens",
    r"prompt cannot exceed #",
    r"input length should be \[\d+, ?#\]",
)
_PROMPTS = _all(
    r"messages resulted in #",
    r"\(# (?:in (?:the messages|your prompt)|of text input)(?:, # (?:in the functions|of tool input))?",
    r"# tokens from the input",
    r"(?:request has|request contains|you passed|prompt contains|prompt has) #",
    r"prompt is too long: #",
    r"context limit: # \+",
    r"input token count (?:of |is )?\(?#",
    r"request \(# tokens\)",
    r"\(length #\)",
    r"provided prompt is # tokens",
    r"input (?:length )?\(#(?: tokens\))?",
    r"given: #",
    r"received #",
    r"keep the first # tokens",
)
_TOTALS = _all(r"you requested (?:about |a total of )?#", r"\(requested: #")
_EXCESSES = _all(r"exceeded max(?:imum)? context length by #")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The numbers of a refusal, in tokens; ``None`` for what it does not say."""

    limit: int | None = None
    prompt: int | None = None
    total: int | None = None
    excess: int | None = None

    def counted(self, *, window: int, output: int) -> int | None:
        """Return the tokens of the prompt by the provider's count.

        :param window: what the model takes, where the refusal does not say it
        :param output: what the call reserved for the answer
        """
        if self.prompt is not None:
            return self.prompt
        if self.total is not None:
            return self.total - output if self.total > output else None
        return None if self.excess is None else (self.limit or window) + self.excess


def is_too_long(words: str) -> bool:
    return _TOO_LONG.search(words) is not None or any(pattern.search(words) for pattern in _EXCESSES)


def read_overflow(words: str) -> Overflow:
    """Return the numbers in a provider's words, unchecked: they may come from anywhere."""
    return Overflow(
        limit=_first(_LIMITS, words),
        prompt=_first(_PROMPTS, words),
        total=_first(_TOTALS, words),
        excess=_first(_EXCESSES, words),
    )


def _first(patterns: tuple[re.Pattern[str], ...], words: str) -> int | None:
    """Return the number that the first matching pattern finds, or the sum where it finds several."""
    found = next((match for pattern in patterns if (match := pattern.search(words))), None)
    if found is None:
        return None
    count = sum(int(digits.replace(",", "")[:17]) for digits in found.groups(default="0"))
    return count if 0 < count <= MOST_TOKENS else None


# How a model's own counts of tokens correct our estimates, and how far off these are


class CountSource(StrEnum):
    PROVIDER = "provider"
    MODEL = "model"  # what it reported in other sessions with the same model
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    ratio: float = 1.0  # reported divided by estimated, smoothed
    samples: int = 0
    # How far the corrected estimates were from the reports, as a share of the report and smoothed: 0.03 is 3 %. None
    # without a report.
    error: float | None = None
    is_borrowed: bool = False  # The ratio began as that of other sessions.
    # What the model takes, as its provider said when it refused a prompt, where that is less than its entry says.
    window: int | None = None

    @property
    def source(self) -> CountSource:
        if self.samples:
            return CountSource.PROVIDER
        return CountSource.MODEL if self.is_borrowed else CountSource.ESTIMATED

    def as_dict(self) -> dict[str, Any]:
        return {"source": self.source.value, "ratio": self.ratio, "samples": self.samples, "error": self.error}


def describe_count(*, source: str, ratio: float, samples: int, error: float | None) -> str:
    correction = f"{100 * (ratio - 1):+.0f}\N{NO-BREAK SPACE}%"
    if source == CountSource.PROVIDER:
        missed = f"{100 * (error or 0):.1f}\N{NO-BREAK SPACE}%"
        return f"Estimate, within {missed} of what the provider counted in {samples} call{'' if samples == 1 else 's'}."
    if source == CountSource.MODEL:
        return f"Estimate, corrected as in other sessions with this model ({correction})."
    if ratio != 1:
        return f"Estimate, raised by {correction} after the provider refused a prompt as too long."
    return "Estimate; the provider has not reported a count yet."


def first_calibration(shared_ratio: float | None) -> Calibration:
    if shared_ratio is None:
        return Calibration()
    return Calibration(ratio=_bounded(shared_ratio), is_borrowed=True)


def calibrate(previous: Calibration, estimated: int, reported: int) -> Calibration:
    """Return the calibration after one more call. Counts of 0 or less change nothing.

    What is known before the first report weighs as one sample, so that one odd report moves the ratio half way; later
    reports weigh a fifth, so that a change of the model's tokeniser shows within some turns.
    """
    if estimated <= 0 or reported <= 0:
        return previous
    missed = min(abs(estimated * previous.ratio - reported) / reported, LARGEST_ERROR)
    before = missed if previous.error is None else previous.error
    ratio = _towards(previous.ratio, _bounded(reported / estimated), weight=1 / (previous.samples + 2))
    return replace(
        previous,
        ratio=ratio,
        samples=previous.samples + 1,
        error=_towards(before, missed, weight=1 / (previous.samples + 1)),
    )


def calibrate_refused(previous: Calibration, *, estimated: int, output: int, window: int, words: str) -> Calibration:
    """Return the calibration after a prompt was refused as too long: the next prompt made with it is smaller.

    A refusal is a proof, so its count stands at once and is not smoothed; later reports correct it. A refusal without a
    number refutes what was learnt so far: the ratio grows by a guess, of which the next report takes back half. It
    teaches nothing about a prompt so short that no believable ratio makes it too long.

    :param output: the tokens that the call reserved for its answer
    :param window: what the model takes, as its entry says
    :param words: the provider's own
    """
    said, known = read_overflow(words), min(window, previous.window or window)
    smaller = said.limit if said.limit and SMALLEST_WINDOW <= said.limit < known else None
    learnt = replace(previous, window=smaller or previous.window)
    room = (smaller or known) - output
    counted = said.counted(window=smaller or known, output=output) or 0
    ratio = round(counted / max(1, estimated), 4)
    if counted > room and previous.ratio < ratio <= LARGEST_REFUSED:
        missed = (counted - estimated * previous.ratio) / counted
        return replace(learnt, ratio=ratio, samples=previous.samples + 1, error=round(missed, 4))
    least = room / max(1, estimated)
    if smaller or least > LARGEST_REFUSED:
        return learnt
    grown = round(GROWTH * max(previous.ratio, least), 4)
    return replace(learnt, ratio=min(grown, LARGEST_REFUSED), samples=0, error=None)


def share_ratio(shared: float | None, learnt: Calibration) -> float | None:
    """Return what new sessions of a model should begin with after a turn, or None where what they have is near enough."""
    if not learnt.samples:
        return None
    ratio = learnt.ratio if shared is None else _towards(shared, learnt.ratio)
    return None if shared is not None and abs(ratio - shared) < SMALLEST_CHANGE else ratio


def _towards(value: float, other: float, *, weight: float = 0.0) -> float:
    return round(value + max(weight, NEWEST_WEIGHT) * (other - value), 4)


def _bounded(ratio: float) -> float:
    return min(LARGEST_RATIO, max(SMALLEST_RATIO, ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMeasure:
    """The size of a call as estimated before it was made and as its provider counted it, in tokens."""

    model: str
    tool_tokens: int  # of its tools, which belong to the turn and not to the context
    estimated: int
    reported: int
    calibration: Calibration | None  # What corrected the estimate; None where it was not recorded.
    output: int = 0
    refusal: str = ""  # What the provider said when it refused the prompt as too long, or empty.


def read_measure(
    parameters: dict[str, Any], *, model: str, estimated: int, reported: int, refusal: str = ""
) -> CallMeasure:
    """Return the measure of a recorded call. A record may come from a file, so its parameters are checked."""
    calibration = None
    match parameters.get("calibration"):
        case {"ratio": float(ratio), "samples": int(samples), "error": float() | None as error, **more} if (
            SMALLEST_RATIO <= ratio <= LARGEST_REFUSED
            and 0 <= samples <= MOST_TOKENS
            and 0 <= (error or 0) <= LARGEST_ERROR
        ):
            window = _read_tokens(more.get("window"))
            calibration = Calibration(
                ratio=ratio,
                samples=samples,
                error=error,
                is_borrowed=more.get("is_borrowed") is True,
                window=window if window >= SMALLEST_WINDOW else None,
            )
    return CallMeasure(
        model=model,
        tool_tokens=_read_tokens(parameters.get("tool_tokens")),
        estimated=estimated,
        reported=reported,
        calibration=calibration,
        output=_read_tokens(parameters.get("max_output_tokens")),
        refusal=refusal,
    )


def calibration_after(
    newest: CallMeasure | None, *, model: str, shared_ratio: float | None, window: int
) -> Calibration:
    """Return what corrects the next estimate of a session: what its newest call began with, and what that call taught.

    A call of another model teaches nothing about this one.

    :param window: what the model takes, as its entry says
    """
    begin = first_calibration(shared_ratio)
    if newest is None or newest.model != model:
        return begin
    known = newest.calibration or begin
    if newest.refusal:
        estimated, output = newest.estimated, newest.output
        return calibrate_refused(known, estimated=estimated, output=output, window=window, words=newest.refusal)
    return calibrate(known, newest.estimated, newest.reported)


def _read_tokens(stored: Any) -> int:
    return stored if type(stored) is int and 0 <= stored <= MOST_TOKENS else 0

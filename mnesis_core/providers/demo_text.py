"""Text as the demo model reads it: telling words, sentences, and summaries that are made of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from math import log, log1p, prod, sqrt
from typing import NamedTuple

from mnesis_core.files.references import find_file_ids
from mnesis_core.llm.tokens import estimate_text

# Longer lines are cut into pieces of about so many characters, so that a dump of data stays searchable.
LONGEST_SENTENCE = 600

_WORD = re.compile(r"[^\W_]+(?:[-_.'\u2019/][^\W_]+)*")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
# The same without Hiragana, which mostly writes endings.
_TELLING_UNSPACED = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[)\"'\u201d\u2019\]]{0,2}\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_PIECE = re.compile(rf".{{1,{LONGEST_SENTENCE}}}(?:\s|$)|.{{1,{LONGEST_SENTENCE}}}", re.DOTALL)
_LIST_MARK = re.compile(r"^(?:[-*\u2022>|]+\s+|#{1,6}\s+|\d{1,3}[.)]\s+)+")
# The commonest endings, after at least three characters; "ss" is none.
_ENDING = re.compile(r"(?<=.{3})(?:['\u2019]s|ing|ed|es|(?<!s)s)$")
_STOP_WORDS = """
    a about above after again all also am an and any anything are as ask asked at be because been before being
    but by can could did do does doing done for from get give go going got had has have having he her here hers him
    his how i i'd i'll i'm i've if in into is it it's its itself just know let like ll made make many may me mean
    mention mentioned might mine more most much must my need no not now of off on one only or other our ours out
    over own please re really remember remind said same saw say says see she should show so some something still
    such sure talk talked tell than that that's the their them then there these they thing things think this those
    to told too try us ve very want was way we well were what what's whatever when where which while who whom whose
    why will with would yes you you're your yours yourself
    aber als am an auch auf aus bei bin bist da das dass dein dem den der des die doch du ein eine einem einen einer
    er es für habe hast hat hatte ich ihr im in ist ja kann mein mich mir mit nicht noch nur oder sich sie sind so
    heißt heisst meine meinen meiner welche welcher welches über um und uns von war was wer wie wir zu zum zur
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

HEADINGS = ("Goal", "Key constraints", "Decisions and findings", "Done", "Open", "Files")
GOAL, CONSTRAINTS, DECISIONS, DONE, OPEN, FILES = HEADINGS
DEFAULT_TARGET_TOKENS = 500
# A summary that is hardly smaller than its source is of no use, so this share of the source is its largest budget.
LARGEST_SHARE = 0.7
FILES_SHARE = 0.4  # The share of the budget that file names may take, so that a summary says more than those.
LONGEST_POINT = 280
EVERYWHERE = 0.08  # The share of the sentences above which a word tells nothing any more.
MOST_SENTENCES = 20_000
MOST_POINTS = 400
MOST_PATHS = 2_000
# A sentence with more brackets and the like than this share is code or data and says little by itself.
LARGEST_SIGN_SHARE = 0.08

_SOURCE_TAGS = ("conversation", "summaries", "file_text")
_TARGET = re.compile(r"Target:\s*(\d[\d,]{0,9})\s*tokens", re.IGNORECASE)
_SPEAKER = re.compile(
    r"^[\W\d]{0,12}(user|human|assistant|ai|tool|system)\b[^:\]\n]{0,60}[:\]]+\s*(?:\(?\d+\)?\s*)?", re.IGNORECASE
)
# Every repetition has a bound: a text made for it must not make the search slow.
_PATH = re.compile(
    r"(?<![\w/.:@+-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,255}/){1,64}[\w@+-]{1,255}(?:\.\w{1,8}){1,8}"
    r"|\b[\w-]{1,80}\.(?:[a-z]{1,4}|json|yaml|toml|html)\b"
)
_CODE_SUFFIX = re.compile(
    r"\.(?:py|js|ts|tsx|jsx|css|html?|md|txt|json|jsonl|ya?ml|toml|csv|sql|sh|rs|go|java|c|h|cpp|rb|exs?|pdf|ini|cfg|lock|log|xml)$"
)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$")
_CONCRETE = re.compile(r"\d|`|[a-z][A-Z]|_|\b[A-Z][a-z]+\b.*\b[A-Z][a-z]+\b")
_SIGN = re.compile(r'[{}\[\]<>\\|=;"#$@]')
_NOISE = re.compile(
    r"^(?:ok(?:ay)?|thanks?(?: you)?|great|sure|yes|no|hi|hello|hey|perfect|cool|nice)\b.{0,40}$", re.IGNORECASE
)
_CHATTER = re.compile(
    r"^(?:[\w .'-]{1,30}: )?(?:wow|yeah|yep|hey|haha|lol|thanks?|totally|awesome|congrats|glad|aww?|oh|cool|great|"
    r"that's (?:great|awesome|nice)|sounds)\b",
    re.IGNORECASE,
)

_CUES = {
    CONSTRAINTS: r"must|never|always|only|don't|do not|should(?:n't)?|cannot|can't|required?|limit|at most|at least|deadline"
    r"|budget|prefer|allergic|avoid|without|no later than",
    DONE: r"done|finished|completed|fixed|added|implemented|created|wrote|written|merged|deployed|shipped|updated|removed"
    r"|renamed|installed|tests? pass(?:es|ed)?|booked|bought|sent|paid",
    OPEN: r"todo|to do|next|remaining|still|not yet|pending|unresolved|unclear|later|open question|follow up|blocked",
    DECISIONS: r"decided?|decision|chose|choose|chosen|we(?:'ll| will) use|agreed|because|found|turns out|discovered"
    r"|root cause|caused? by|result|means that|it was|named|called",
    GOAL: r"want|need|goal|would like|i'd like|please|help me|let's|plan(?:ning)? to|trying to|build|project",
}
_CUE_PATTERNS = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in _CUES.items()}


def terms(text: str) -> list[str]:
    """Return the telling words of a text, in lower case and without their commonest endings."""
    words = (word.lower() for word in _WORD.findall(_UNSPACED.sub(" ", text)))
    plain = [_ENDING.sub("", word) for word in words if word not in STOP_WORDS]
    # Chinese, Japanese and Korean do not put spaces between words: pairs of characters stand in for them.
    pairs = [run[at : at + 2] for run in _TELLING_UNSPACED.findall(text) for at in range(max(1, len(run) - 1))]
    return plain + pairs


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, without the marks of lists and headings and without empty ones."""
    found: list[str] = []
    for line in _SENTENCE_END.split(text):
        if line and not line.isspace():
            found.extend(" ".join(piece.split()) for piece in _PIECE.findall(_LIST_MARK.sub("", line.strip())))
    return [sentence for sentence in found if sentence]


def rarity(documents: Iterable[Iterable[str]]) -> dict[str, float]:
    bags = [set(document) for document in documents]
    counts = Counter(term for bag in bags for term in bag)
    return {term: log(1 + len(bags) / count) for term, count in counts.items()}


def shorten(text: str, limit: int) -> str:
    """Put a text on one line of at most ``limit`` characters, cut at a word, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


class _Sentence(NamedTuple):
    text: str
    speaker: str
    under: str  # The heading that it stands under, if the source is itself a summary.


class Point(NamedTuple):
    place: int  # its index in the source
    text: str
    words: frozenset[str]
    heading: str
    score: float


def find_source(text: str) -> str:
    for tag in _SOURCE_TAGS:
        start, end = text.find(f"<{tag}>"), text.rfind(f"</{tag}>")
        if 0 <= start < end:
            return text[start + len(tag) + 2 : end]
    return ""


def find_target(text: str) -> int:
    found = _TARGET.search(text)
    return max(1, int(found[1].replace(",", ""))) if found else DEFAULT_TARGET_TOKENS


def summarise(source: str, target: int) -> str:
    """Summarise under headings in at most ``target`` tokens, always shorter than ``source`` and never empty.

    Sentences are ranked by how often their words occur in the whole, by how concrete they are and by where
    they stand; the best go under their headings until the budget is used up. Nothing is said that was not said.
    """
    budget = min(target, int(estimate_text(source) * LARGEST_SHARE))
    # File ids first, since nothing else finds a file again; then paths, the most often named first.
    paths = Counter(path for path in _PATH.findall(source) if _CODE_SUFFIX.search(path))
    whole = [path for path, _ in paths.most_common(MOST_PATHS)]
    endings = {path[at + 1 :] for path in whole for at, sign in enumerate(path) if sign == "/" and at}
    names = [*find_file_ids(source), *(path for path in whole if path not in endings)]
    costs = accumulate(map(_cost, names))
    files = [name for name, cost in zip(names, costs, strict=True) if cost <= budget * FILES_SHARE]
    chosen = choose_points(source, budget - sum(map(_cost, files)) - 4 * len(HEADINGS))
    while estimate_text(text := _under_headings(chosen, files)) > budget:
        # Whichever is longer gives way, the least telling first.
        (chosen if len(chosen) > len(files) else files).pop()
    if text:
        return text
    # There is no room for headings, only for a few words.
    words = " ".join(item.text for item in islice(_sentences_of(source), 40)).split()[:40] or source.split()[:40]
    beginnings = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((text for text in beginnings if estimate_text(text) <= budget), words[0][:1] if words else "-")


def choose_points(source: str, budget: int) -> list[Point]:
    told = list(islice(_sentences_of(source), MOST_SENTENCES))
    bags = [frozenset(terms(item.text)) for item in told]
    counts = Counter(word for bag in bags for word in bag)
    # What recurs is what a source is about; what is in every other sentence, such as a speaker's name, is not.
    everywhere = max(6.0, EVERYWHERE * len(bags))
    weights = {word: log1p(count) if count <= everywhere else 0.0 for word, count in counts.items()}
    points: list[Point] = []
    goals = 0
    for index, (item, words) in enumerate(zip(told, bags, strict=True)):
        if len(words) < 2 or _NOISE.match(item.text) or (len(words) < 4 and _CHATTER.match(item.text)):
            continue
        heading = item.under or _heading(item, is_early=goals < 3)
        goals += heading == GOAL
        score = _score(item, words, weights, place=index / len(told), is_cued=_has_cue(heading, item.text))
        points.append(Point(index, shorten(item.text, LONGEST_POINT), words, heading, score))

    chosen: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.score, point.place)):
        cost = _cost(point.text)
        if cost > budget or any(len(point.words & other.words) > 0.6 * len(point.words) for other in chosen):
            continue
        chosen.append(point)
        budget -= cost
        if len(chosen) == MOST_POINTS or budget < 4:
            break
    return chosen


def _under_headings(points: list[Point], files: list[str]) -> str:
    lines = {heading: [f"## {heading}"] for heading in HEADINGS}
    for point in sorted(points, key=lambda point: point.place):
        lines[point.heading].append(f"- {point.text}")
    lines[FILES] += [f"- {name}" for name in files]
    return "\n\n".join("\n".join(block) for block in lines.values() if len(block) > 1)


def _score(item: _Sentence, words: frozenset[str], weights: dict[str, float], *, place: float, is_cued: bool) -> float:
    text = item.text
    factors = (
        (_CONCRETE.search(text), 1.25),
        (is_cued, 1.3),
        (item.speaker in ("user", "human"), 1.3),
        (place < 0.05 or place > 0.9, 1.3),
        (text.endswith("!"), 0.8),
        (text.endswith("?"), 0.6),
        (len(words) < 4, 0.6),
        (item.speaker == "tool", 0.5),
        (_CHATTER.match(text), 0.4),
        (len(_SIGN.findall(text)) > LARGEST_SIGN_SHARE * len(text), 0.1),
    )
    # The root keeps long sentences from winning by their length alone.
    score = sum(weights[word] for word in words) / sqrt(len(words) + 4)
    return score * prod(factor for applies, factor in factors if applies)


def _sentences_of(source: str) -> Iterator[_Sentence]:
    speaker = under = ""
    for line in filter(str.strip, source.splitlines()):
        if heading := _HEADING.match(line.strip()):
            under = heading[1] if heading[1] in HEADINGS else ""
            continue
        if spoken := _SPEAKER.match(line):
            speaker, under = spoken[1].lower(), ""
            line = line[spoken.end() :]
        if under == FILES or line.lstrip().startswith(("<", "[LCM File IDs:")):
            continue
        for sentence in sentences(line):
            yield _Sentence(sentence, speaker, under)


def _heading(item: _Sentence, *, is_early: bool) -> str:
    if item.text.endswith("?") and item.speaker not in ("assistant", "tool"):
        return GOAL if is_early else OPEN
    if is_early and item.speaker in ("", "user", "human") and _has_cue(GOAL, item.text):
        return GOAL
    return next((name for name in (OPEN, DONE, CONSTRAINTS) if _has_cue(name, item.text)), DECISIONS)


def _has_cue(heading: str, text: str) -> bool:
    return _CUE_PATTERNS[heading].search(text) is not None


def _cost(text: str) -> int:
    return estimate_text(f"- {text}\n")

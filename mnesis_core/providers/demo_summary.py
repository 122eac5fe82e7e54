"""The demo model's summaries: sentences of a source, word for word, under headings, each with who said it and when; and
its facts.

What was asked to be remembered is always kept, and comes first. For the rest, what states something (numbers, dates,
names, decisions, what happened) comes before moods and pleasantries.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import log1p, prod, sqrt
from typing import Any, NamedTuple

from mnesis_core.facts import asks_to_remember
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers.demo_source import (
    CONSTRAINTS,
    DECISIONS,
    DONE,
    FACTS,
    FAILURES,
    FILES,
    GOAL,
    HEADINGS,
    LABEL,
    LIST_MARK,
    OPEN,
    REMEMBER,
    SENTENCE_END,
    STOP_WORDS,
    Source,
    Told,
    read_source,
    shorten,
    terms,
)

DEFAULT_TARGET_TOKENS = 500
# A summary that is hardly smaller than its source is of no use, so this share of the source is its largest budget.
LARGEST_SHARE = 0.7
FILES_SHARE = 0.3  # The share of the budget that file names may take, so that a summary says more than those.
SMALLEST_WITH_PERIOD = 24  # tokens of a budget that has room to say of when the summary is
SMALLEST_WITH_HEADINGS = 100
HEADING_TOKENS = 4
LONGEST_POINT = 280
REMEMBERED_LENGTHS = (1_000, 500, 250, 120, 60)  # What was asked to be remembered is shortened before any is left out.
EVERYWHERE = 0.08  # The share of the sentences above which a word tells nothing any more.
MOST_SENTENCES = 20_000
MOST_POINTS = 400
MOST_GOALS = 3
FIRST_GOAL = 4.0  # how much more the first thing that was wanted counts: it is the task
# A sentence with more brackets and the like than this share is code or data and says little by itself.
LARGEST_SIGN_SHARE = 0.08
SMALLEST_SHARE = 0.08  # of the second best score: what says less is left out even where there is room
MISSED = 4.0  # how much more a sentence counts for each of the things that a first draft had lost
ALIKE = 0.6  # Two sentences that share more of their telling words than this say the same.

FILE_TAG = "file_text"
_SOURCE_TAGS = ("conversation", "summaries", FILE_TAG)
_TARGET = re.compile(r"Target:\s*(\d[\d,]{0,9})\s*tokens", re.IGNORECASE)
MARKER = "MNESIS-FACTS"
MOST_FACTS = 20
LONGEST, SHORTEST = 300, 8  # characters of a sentence

# Every repetition has a bound: a text made for it must not make the search slow.
_NAME = r"((?:[\w'\u2019-]{1,30} ){0,3}[\w'\u2019-]{1,30}?)"
_RULES = (
    (
        "decision",
        re.compile(r"\b(?:we|i)(?:['\u2019]ve| have)? (?:decided|agreed|settled on|will go with)\b", re.IGNORECASE),
    ),
    (
        "preference",
        re.compile(r"\b(?:i(?:['\u2019]d| would)? (?:much |really )?prefer|my favou?rite)\b", re.IGNORECASE),
    ),
    ("entity", re.compile(rf"^(?:and |but |so |by the way, )?(?:my|our) {_NAME} (?:is|are)\b", re.IGNORECASE)),
    ("open_task", re.compile(r"^(?:to-?do:|(?:we|i) still (?:need|have) to\b)", re.IGNORECASE)),
    ("constraint", re.compile(r"^(?:never|always)\b|\b(?:must|may not|has to) \w", re.IGNORECASE)),
)
_REMEMBER = re.compile(r"\b(?:remember|forget|keep in mind|note that)\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b(?:my|our|the) {_NAME} (?:is|are|must|has to|should)\b", re.IGNORECASE)
_QUOTATION = re.compile('["\u201c\u201d\u00ab\u00bb]')
_FOR = re.compile(r"\bprefer .{1,80} for ([\w ]{1,40})[.!]?$", re.IGNORECASE)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_SIGN = re.compile(r'[{}\[\]<>\\|=;"#$@]')
_NOISE = _pattern(
    r"(?:ok(?:ay)?|thanks?(?: you)?|great|sure|yes|no|hi|hello|hey|perfect|cool|nice)\b.{0,40}$"
    # The demo model's own answers, which repeat what was said.
    r"|\[Request interrupted|Noted: \u201c|Ask me later what you said|(?:You|I) said in message \d|I find nothing about \*\*"
)
_CHATTER = _pattern(
    r"(?:wow|yeah|yep|hey|haha|lol|thanks?|totally|awesome|congrats|congratulations|glad|aww?|oh|cool|great|good (?:luck|to)"
    r"|that's (?:great|awesome|nice|so)|sounds|absolutely|exactly|definitely|you're welcome|take care|no (?:problem|worries))\b"
)
# What an assistant says of its next step, whose outcome is told later.
_STEP = _pattern(
    r"(?:(?:ok|good|right|perfect)[,.]? )?(?:now|next|then|let me|let's|starting|still \w+ing|i(?:'ll| will)|i have a clear"
    r"|(?:i )?need to)\b"
)
_LET_ME = _pattern(r"(?:\w+[,.]? )?let me\b")
_VAGUE = _pattern(r"(?:it|that|this|they|these|those|he|she)(?:['\u2019]\w+)?\b")
_MOOD_WORDS = """
    amazing awesome great wonderful inspiring inspired inspire proud happy glad excited exciting thrilled love loved loving
    lovely beautiful incredible fantastic grateful thankful appreciate support supportive feel feeling feelings felt hope
    believe cool nice sweet fun joy awe special powerful meaningful important strong strength courage positive difference
    best good better thanks thank sure totally really truly definitely keep going
"""
_MOOD = frozenset(_MOOD_WORDS.split())
_CUES = {
    CONSTRAINTS: _pattern(
        r"\b(?:must|never|always|only|don't|do not|should(?:n't)?|cannot|can't|required?|limit|at most|at least|deadline"
        r"|budget|prefer|allergic|avoid|without|no later than)\b"
    ),
    DONE: _pattern(
        r"\b(?:done|finished|completed|fixed|added|implemented|created|wrote|written|merged|deployed|shipped|updated|removed"
        r"|renamed|installed|tests? (?:now )?pass(?:es|ed)?|booked|bought|sent|paid)\b"
    ),
    OPEN: _pattern(
        r"\b(?:todo|to do|remaining|not yet|pending|unresolved|unclear|open question|follow up|blocked|next step|left to do"
        r"|still (?:open|missing|need\w*|fail\w*|to))\b"
    ),
    DECISIONS: _pattern(
        r"\b(?:decided?|decision|chose|choose|chosen|(?:we|i)(?:'ll| will) use|let's (?:use|go with)|agreed|settled on|opted"
        r"|instead of|root cause|caused? by)\b"
    ),
    GOAL: _pattern(
        r"\b(?:want|need|goal|would like|i'd like|please|help me|let's|plan(?:ning)? to|trying to|build|project|implement|fix"
        r"|add|make|write|create|change|update|doesn['\u2019]?t|does not|not work\w*|broken|fail(?:s|ing)|bug|error)\b"
    ),
}
_PLAN = _pattern(
    r"\b(?:going to|gonna|plan(?:s|ning)?\b|i(?:'ll| will)|we(?:'ll| will)|hop(?:e|ing) to|want to|looking forward|tomorrow"
    r"|next (?:week|weekend|month|year|spring|summer|autumn|fall|winter))\b"
)
_NUMBER = _pattern(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|once|twice|half|second"
    r"|third)\b"
)
_WHEN = _pattern(
    r"\b(?:january|february|march|april|june|july|august|september|october|november|december|in may"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|yesterday|today|tonight|tomorrow|ago|since \d{4}|birthday|anniversary"
    r"|(?:last|next|this|every) (?:night|week|weekend|month|year|spring|summer|autumn|fall|winter|fri|sat|sun|mon|tues)\w*)\b"
)
_EVENT = _pattern(
    r"\b(?:went|got|bought|sold|started|began|finished|joined|moved|met|won|lost|passed|adopted|signed|applied|visited"
    r"|travel\w*|booked|quit|left|opened|launched|graduated|married|divorced|born|died|named|called|made|built|wrote|read"
    r"|ran|painted|came from|grew up|attended|received|took|taught|found|because|broke|hired|works? (?:at|as|for|in)"
    r"|lives? in|allergic|diagnosed)\b"
)
_OWN = _pattern(
    r"\b(?:my|our)(?: \w+){1,3} (?:is|are|was|were)\b|\bi(?:'m| am) (?:a|an|from|allergic|vegetarian|single)\b"
)
_CODE = re.compile(r"`|[a-z][A-Z]|_|\w[./]\w")
_TITLE = re.compile(r"[\"\u201c][^\"\u201d\n]{2,80}[\"\u201d]")
_MARKS = "()[]\"\u201c\u201d'*.,;:!?"
_POSSESSIVE = re.compile(r"['\u2019]\w+$")


class Point(NamedTuple):
    place: int  # its index in the source
    text: str
    words: frozenset[str]
    heading: str
    score: float


def find_source(text: str) -> tuple[str, str]:
    """Return the tag that a source stands in, and the source; both empty if there is none."""
    for tag in _SOURCE_TAGS:
        start, end = text.find(f"<{tag}>"), text.rfind(f"</{tag}>")
        if 0 <= start < end:
            return tag, text[start + len(tag) + 2 : end]
    return "", ""


def find_target(text: str) -> int:
    found = _TARGET.search(text)
    return max(1, int(found[1].replace(",", ""))) if found else DEFAULT_TARGET_TOKENS


def summarise(text: str, target: int) -> str:
    """Summarise under headings in at most ``target`` tokens, always shorter than ``text`` and never empty.

    Nothing is said that was not said. What has to be remembered is left out only if it alone is more than the target.
    """
    budget = min(target, int(estimate_text(text) * LARGEST_SHARE))
    source = read_source(text)
    period = source.period if budget >= SMALLEST_WITH_PERIOD else ""
    has_headings = budget >= SMALLEST_WITH_HEADINGS
    points = _points_of(source)
    headings = 1 + len({point.heading for point in points}) if has_headings else 0
    room = budget - estimate_text(period) - HEADING_TOKENS * headings
    kept = _remembered(points, room)
    room -= sum(_cost(point.text) for point in kept)
    files: list[str] = []
    left = room * (FILES_SHARE if points else 1)
    for name in source.names_of_files():
        if (left := left - _cost(name)) < 0:
            break
        files.append(name)
    chosen = _best(points, room - sum(map(_cost, files)), kept)
    while estimate_text(written := _written(period, [*kept, *chosen], files, has_headings=has_headings)) > budget:
        # Whichever is longer gives way, the least telling first; what has to be remembered last, the oldest first.
        if chosen or files:
            (chosen if len(chosen) > len(files) else files).pop()
        elif kept:
            kept.pop(0)
        else:
            break
    return written if kept or chosen or files else _first_words(source, text, budget)


def describe(text: str, target: int) -> str:
    """Describe a file's text in one paragraph of its own sentences, in at most ``target`` tokens."""
    points = sorted(
        choose_points(text, min(target, int(estimate_text(text) * LARGEST_SHARE))), key=lambda point: point.place
    )
    return " ".join(point.text for point in points) or _first_words(read_source(text), text, target)


def choose_points(text: str, budget: int) -> list[Point]:
    """Return what a text says that has no labels, the best first, within ``budget`` tokens."""
    points = _points_of(read_source(text))
    kept = _remembered(points, budget)
    return [*kept, *_best(points, budget - sum(_cost(point.text) for point in kept), kept)]


def _first_words(source: Source, text: str, budget: int) -> str:
    """Return a few words, where there is no room for more."""
    told = source.told[:40] or filter(None, [source.beginning])
    words = " ".join(item.text for item in told).split()[:40] or text.split()[:40]
    beginnings = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((text for text in beginnings if estimate_text(text) <= budget), words[0][:1] if words else "-")


def _remembered(points: list[Point], budget: int) -> list[Point]:
    # The last of equal requests, since it may have been repeated much later.
    wanted = {point.text.rpartition(": ")[2].casefold(): point for point in points if point.heading == REMEMBER}
    kept = sorted(wanted.values(), key=lambda point: point.place)
    for length in REMEMBERED_LENGTHS:
        kept = [point._replace(text=shorten(point.text, length)) for point in kept]
        if sum(_cost(point.text) for point in kept) <= budget:
            break
    return kept


def _points_of(source: Source) -> list[Point]:
    told = source.told[:MOST_SENTENCES]
    bags = [frozenset(terms(item.text)) for item in told]
    counts = Counter(word for bag in bags for word in bag)
    # What recurs is what a source is about; what is in every other sentence, such as a speaker's name, is not.
    everywhere = max(6.0, EVERYWHERE * len(bags))
    weights = {word: log1p(count) if count <= everywhere else 0.0 for word, count in counts.items()}
    own = {part.lower() for name in source.people for part in name.split()}
    day = source.only_day
    points: list[Point] = []
    goals = 0
    for index, (item, words) in enumerate(zip(told, bags, strict=True)):
        heading = item.heading or _heading(item, is_early=goals < MOST_GOALS, among_people=bool(source.people))
        says_nothing = (
            len(words) < 2
            or _NOISE.match(item.text)
            or (len(words) < 4 and _CHATTER.match(item.text))
            or (item.role == "assistant" and _LET_ME.match(item.text))
        )
        if says_nothing and heading != REMEMBER:
            continue
        goals += heading == GOAL
        score = _score(item, heading, words, weights, own)
        score *= 1 + MISSED * sum(text in item.text for text in source.missing)
        if heading == GOAL and goals == 1:
            score *= FIRST_GOAL
        text = item.text if heading == REMEMBER else shorten(item.text, LONGEST_POINT)
        points.append(Point(index, item._replace(text=text).line(without=day), words, heading, score))
    if not points and source.beginning and not source.changed:
        return [Point(0, source.beginning.line(without=day), frozenset(), FACTS, 0.0)]
    return points


def _best(points: list[Point], budget: int, kept: list[Point]) -> list[Point]:
    chosen: list[Point] = []
    taken = [point.words for point in kept]
    ranked = sorted(
        (point for point in points if point.heading != REMEMBER), key=lambda point: (-point.score, point.place)
    )
    # Of the second, since the first may be the task, which counts for more than it says.
    least = SMALLEST_SHARE * ranked[min(1, len(ranked) - 1)].score if ranked else 0.0
    for point in ranked:
        cost = _cost(point.text)
        if point.score < least:
            break
        if cost > budget:
            continue
        if any(len(point.words & other) > ALIKE * len(point.words) for other in taken):
            continue
        chosen.append(point)
        taken.append(point.words)
        budget -= cost
        if len(chosen) == MOST_POINTS or budget < 4:
            break
    return chosen


def _written(period: str, points: list[Point], files: list[str], *, has_headings: bool) -> str:
    lines: dict[str, list[str]] = {heading: [] for heading in HEADINGS}
    for point in sorted(points, key=lambda point: point.place):
        lines[point.heading].append(f"- {point.text}")
    lines[FILES] += [f"- {name}" for name in files]
    under = {heading: "\n".join(block) for heading, block in lines.items() if block}
    if has_headings:
        blocks = [f"## {heading}\n{block}" for heading, block in under.items()]
    else:
        blocks = ["\n".join(under.values())] if under else []
    return "\n\n".join([period, *blocks] if period else blocks)


def _score(item: Told, heading: str, words: frozenset[str], weights: dict[str, float], own: set[str]) -> float:
    text = item.text
    names = _names_in(text, own)
    numbers = len(_NUMBER.findall(text))
    is_question = text.endswith("?")
    facts = (
        0.4 * min(numbers, 2)
        + 0.4 * min(names, 2)
        + 0.6 * bool(_WHEN.search(text))
        + 0.5 * bool(_EVENT.search(text))
        + 0.4 * bool(_OWN.search(text))
        + 0.3 * bool(_CODE.search(text) or _TITLE.search(text))
        + 0.6 * (heading == DECISIONS)
        + 0.5 * (heading in (GOAL, DONE, FAILURES, CONSTRAINTS, OPEN) and not is_question)
    )
    moods = sum(word in _MOOD for word in text.lower().replace("!", " ").replace(",", " ").replace(".", " ").split())
    factors = (
        (item.role == "user", 1.3),
        (heading == GOAL, 2.0),
        (text.endswith("!"), 0.8),
        (is_question, 0.35),
        (len(words) < 4 and heading not in (GOAL, DECISIONS), 0.6),
        (item.role == "tool" and heading != FAILURES, 0.4),
        (_CHATTER.match(text), 0.4),
        (item.role == "assistant" and _STEP.match(text), 0.3),
        (_VAGUE.match(text) and names + numbers == 0, 0.6),
        (len(_SIGN.findall(text)) > LARGEST_SIGN_SHARE * len(text), 0.3 if heading == FAILURES else 0.1),
    )
    # The root keeps long sentences from winning by their length alone.
    score = sum(weights[word] for word in words) / sqrt(len(words) + 4)
    mood = 1 / (1 + 4 * moods / max(4, len(words)))
    return (score + 0.5) * (1 + facts) * mood * prod(factor for applies, factor in factors if applies)


def _names_in(text: str, own: set[str]) -> int:
    """Return how many words have a capital letter that does not come from where they stand, those of ``own`` aside."""
    words = text.split()
    inner = (word.strip(_MARKS) for before, word in pairwise(words) if before[-1] not in ".!?:")
    found = {_POSSESSIVE.sub("", word).lower() for word in inner if word[:1].isupper()}
    return len(found - own - STOP_WORDS)


def _heading(item: Told, *, is_early: bool, among_people: bool) -> str:
    if item.role == "tool":
        return FACTS
    if among_people:
        return next(
            (name for name, cue in ((DECISIONS, _CUES[DECISIONS]), (OPEN, _PLAN)) if cue.search(item.text)), FACTS
        )
    is_users = item.role in ("", "user")
    if item.text.endswith("?"):
        return (GOAL if is_early else OPEN) if is_users else FACTS
    if is_early and is_users and _CUES[GOAL].search(item.text):
        return GOAL
    known = (OPEN, DONE, DECISIONS, *((CONSTRAINTS,) if is_users else ()))
    return next((name for name in known if _CUES[name].search(item.text)), FACTS)


def _cost(text: str) -> int:
    return estimate_text(f"- {text}\n")


# Facts as the demo model finds them: sentences that say by their words that they are to be kept.


def facts_in(source: str) -> str:
    """Return the facts of a transcript as the JSON that is asked for."""
    found = []
    for seq, role, sentence in _sentences(source):
        # An assistant that repeats what was said states nothing itself.
        states = not sentence.endswith("?") and (role == "user" or not _QUOTATION.search(sentence))
        kind = next((kind for kind, rule in _RULES if rule.search(sentence)), "") if states else ""
        if states and asks_to_remember(sentence) and _REMEMBER.search(sentence):
            kind = "instruction"
        if kind and (role == "user" or kind == "decision"):
            found.append(_fact(sentence, kind=kind, seq=seq))
    return json.dumps({"facts": found[-MOST_FACTS:]}, ensure_ascii=False)


def _sentences(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield what users and assistants say, with the number of the message."""
    seq, role = 0, ""
    for line in source.split("\n"):
        text = line
        if label := LABEL.match(line):
            seq, role, text = int(label[1]), "" if label[3] else label[2], line[label.end() :]
        if role not in ("user", "assistant"):
            continue
        for piece in SENTENCE_END.split(text):
            sentence = LIST_MARK.sub("", (piece or "").strip())
            if SHORTEST <= len(sentence) <= LONGEST:
                yield seq, role, sentence


def _fact(sentence: str, *, kind: str, seq: int) -> dict[str, Any]:
    subject = _FOR.search(sentence) if kind == "preference" else None
    subject = subject or _SUBJECT.search(sentence)
    return {
        "statement": sentence,
        "kind": kind,
        "subject": subject[1] if subject else "",
        "message": seq,
        "quote": sentence,
    }

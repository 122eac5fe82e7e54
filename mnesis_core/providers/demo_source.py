"""Text as the demo model reads it: telling words and sentences, and a source to summarise as sentences, each with its
speaker and date.

A source is a transcript, whose texts begin with a label such as ``[12 user, 2026-05-07]``; or summaries, each under a line
such as ``[summary sum_… of messages 1 to 24]``; or any other text. Nothing in it is trusted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from math import log
from typing import NamedTuple

from mnesis_core.facts import asks_to_remember

HEADINGS = (
    "To remember",
    "Goal",
    "Decisions",
    "Constraints",
    "Facts",
    "Done",
    "Failures",
    "Open and planned",
    "Files",
)
REMEMBER, GOAL, DECISIONS, CONSTRAINTS, FACTS, DONE, FAILURES, OPEN, FILES = HEADINGS
CHANGED = " (changed)"  # after the name of a file that a tool wrote
LONGEST_NAME = 60
MOST_LISTED = 20  # items kept of a list that a user asked to remember as a whole
MOST_OF_A_RESULT = 4  # sentences kept of one tool result
LONGEST_FAILURE = 200
LONGEST_BEGINNING = 120
MOST_PATHS = 2_000

_MONTH_NAMES = "January February March April May June July August September October November December"
_MONTHS = _MONTH_NAMES.split()
_DAY = rf"\d{{1,2}} (?:{'|'.join(_MONTHS)}) \d{{4}}"
# Other summarisers' names for our headings.
_HEADINGS_OF_OTHERS = {
    "key constraints": CONSTRAINTS,
    "key instructions & constraints": CONSTRAINTS,
    "discoveries & findings": FACTS,
    "other important context": FACTS,
    "completed work": DONE,
    "in progress": OPEN,
    "remaining work": OPEN,
    "open": OPEN,
    "relevant files & directories": FILES,
}
_KNOWN_HEADINGS = {heading.lower(): heading for heading in HEADINGS} | _HEADINGS_OF_OTHERS

# Every repetition has a bound: a text made for it must not make the search slow.
LABEL = re.compile(
    r"\[(\d{1,12}) (user|assistant|system|tool)\b([^\n]{0,300}?)(?:, (\d{4}-\d\d-\d\d))?(?:, continued)?\](?: |$)"
)
_FRAME = re.compile(r"\[summary sum_\w{1,40} of messages (\d{1,12}) to (\d{1,12})(, continued)?\] ?")
_TEXT_LABEL = re.compile(r"\[text(?:, continued)?\] ")
_SPEAKERS = re.compile(rf"\[speakers\](?: user is ([^;\n]{{1,{LONGEST_NAME}}}))?;?(?: assistant is ([^;\n]+))?$")
_MISSING = re.compile(r"\[missing\] (.{1,400})$")
_PERIOD = re.compile(
    rf"Messages? (\d{{1,12}})(?: to (\d{{1,12}}))?(?:, ({_DAY})(?: to ({_DAY}))?)?(?:, between ([^\n]{{1,200}}))?\.$"
)
_SAID = re.compile(rf"([^:\n]{{1,80}}, {_DAY}): ")
_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*$")
_FENCES = ("```", "~~~")
_TAG = re.compile(r"\s*(?:<|&lt;)[/!?a-zA-Z]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
    "|[\ud800-\udfff]"
)

_PATH = re.compile(
    r"(?<![\w/.:@+-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,255}/){1,64}[\w@+-]{1,255}(?:\.\w{1,8}){1,8}"
    r"|\b[\w-]{1,80}\.(?:[a-z]{1,4}|json|yaml|toml|html)\b"
)
_CODE_SUFFIX = re.compile(
    r"\.(?:py|js|ts|tsx|jsx|css|html?|md|txt|json|jsonl|ya?ml|toml|csv|sql|sh|rs|go|java|c|h|cpp|rb|exs?|pdf|ini|cfg|lock|log|xml)$"
)
_WRITING_TOOL = re.compile(r"edit|write|create|patch|replace|apply|save", re.IGNORECASE)
_PATH_ARGUMENT = re.compile(r'"(?:file_?|notebook_?)?(?:path|name)"\s{0,4}:\s{0,4}"([^"\\\n]{1,300})"', re.IGNORECASE)
_FAILURE = re.compile(
    r"\s{0,8}(?:E\s{1,8})?(?:[\w.]{1,80}(?:Error|Exception)\b[:(]|(?:FAILED|FAIL|ERROR|fatal|error)\b[:[ ]|npm ERR!"
    r"|Error: |Exit code [1-9]|=+ .{0,80}\d failed|panic: |Traceback |\*\* \(|not ok \d|\d+\) test )"
)
_PROSE = re.compile(r"[A-Z][\w'\u2019,-]*(?: [\w'\u2019(),;:%/.-]+){4,60}(?<!\.\.)[.!]$")
_MORE = " \u2026 "  # between the lines of what failed


_OWN_LINES = ("[LCM ", "[Level 3 excerpt")
# Longer lines are cut into pieces of about so many characters, so that a dump of data stays searchable.
LONGEST_SENTENCE = 600

_WORD = re.compile(r"[^\W_]+(?:[-_.'\u2019/][^\W_]+)*")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
# The same without Hiragana, which mostly writes endings.
_TELLING_UNSPACED = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ABBREVIATIONS = ("Dr", "Mr", "Mrs", "Ms", "St", "e.g", "i.e", "vs")
SENTENCE_END = re.compile(
    "".join(rf"(?<!\b{re.escape(word)}\.)" for word in _ABBREVIATIONS)
    # Three dots go on with a small letter, and end with a capital one.
    + r"(?:(?<=[.!?…])(?!\s+(?<=\.\.\.\s)[a-z])|(?<=[.!?…][)\"'\u201d\u2019\]]))\s+|(?<=[\u3002\uff01\uff1f])|\n+"
)
_PIECE = re.compile(rf".{{1,{LONGEST_SENTENCE}}}(?:\s|$)|.{{1,{LONGEST_SENTENCE}}}", re.DOTALL)
LIST_MARK = re.compile(r"^(?:[-*\u2022>|]+\s+|#{1,6}\s+|\d{1,3}[.)]\s+)+")
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


class Told(NamedTuple):
    text: str  # word for word, on one line
    said: str = ""  # the speaker and the date, such as "Ana, 7 May 2023"; empty if the source does not say
    role: str = ""  # empty for a text without a speaker
    heading: str = ""  # the heading it belongs under, if that is known already

    def line(self, *, without: str = "") -> str:
        """Return the text after who said it and when, but not a day that need not be told."""
        said = self.said.removesuffix(f", {without}") if without else self.said
        return f"{said}: {self.text}" if said else self.text


@dataclass(slots=True, kw_only=True)
class Source:
    told: list[Told] = field(default_factory=list)
    beginning: Told | None = None  # its first line
    people: tuple[str, ...] = ()  # the names of those who talk, if both are known by name
    files: Counter[str] = field(default_factory=Counter)  # the number of times each is named outside tool results
    changed: Counter[str] = field(default_factory=Counter)  # the number of times tools wrote each
    messages: list[int] = field(default_factory=list)
    days: list[date] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # what a first draft had lost, and this one should have
    undated: int = 0  # the number of summaries that do not name their days

    @property
    def only_day(self) -> str:
        """Return the day of all messages, in words; empty if there are several, or one is not known."""
        return day_in_words(self.days[0]) if len(set(self.days)) == 1 and not self.undated else ""

    @property
    def period(self) -> str:
        """Return which messages it has, of which days, and who talks; empty if it has none of its own."""
        if not self.messages:
            return ""
        first, last = min(self.messages), max(self.messages)
        days = sorted({min(self.days), max(self.days)}) if self.days and not self.undated else []
        spans = (
            f"Messages {first} to {last}" if first < last else f"Message {first}",
            " to ".join(map(day_in_words, days)),
            f"between {' and '.join(self.people)}" if self.people else "",
        )
        return ", ".join(filter(None, spans)) + "."

    def names_of_files(self) -> list[str]:
        """Return the files: those that tools wrote, then those that are named most often."""
        whole = [path for path, _ in self.files.most_common(MOST_PATHS)]
        written = [path for path, _ in self.changed.most_common(MOST_PATHS)]
        endings = {path[at + 1 :] for path in (*whole, *written) for at, sign in enumerate(path) if sign == "/" and at}
        others = [path for path in whole if path not in endings and path not in self.changed]
        return [*(path + CHANGED for path in written if path not in endings), *others]


def day_in_words(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def read_source(text: str) -> Source:
    reader = _Reader()
    # Lines end only at "\n", since a text may contain the other separators that ``splitlines`` knows.
    for line in text.split("\n"):
        reader.read(line)
    return reader.source


class _Reader:
    def __init__(self) -> None:
        self.source = Source()
        self.names: dict[str, str] = {}
        self.said = self.role = self.heading = self.tool = ""
        self.is_of_summaries = False
        self.kind = "text"  # or "said", "summary", "input", "output", "error", "file"
        self.day: date | None = None
        self.is_code = False
        self.listed = 0  # items of a list that may still follow a request to remember them
        self.is_bare = False  # The last sentence asks to remember what follows.
        self.left = 0  # sentences of a tool's result that may still be taken
        self.failure: int | None = None  # the place in ``told`` of the failure that this result reports
        self.day_of_summary = ""
        self.is_new = False  # Nothing is read yet of the summary after a frame.
        self.spoken = _SPOKEN  # matches the speaker of a point without a day of its own

    def read(self, line: str) -> None:
        line = _FRAME.sub("", _INVISIBLE.sub("", self._after_label(line))).strip()
        if not line:
            return
        if self.source.beginning is None:
            self.source.beginning = Told(line[:LONGEST_BEGINNING], self.said, self.role)
        if self.kind not in ("output", "error"):
            self.source.files.update(path for path in _PATH.findall(line) if _CODE_SUFFIX.search(path))
        match self.kind:
            case "said":
                self._read_speech(line)
            case "input":
                if _WRITING_TOOL.search(self.tool):
                    self.source.changed.update(_PATH_ARGUMENT.findall(line))
            case "output" | "error" | "file":
                self._read_result(line)
            case _:
                self._read_text(line)

    def _after_label(self, line: str) -> str:
        """Take note of what a label at the beginning of a line says, and return the rest."""
        is_ours = line.removeprefix("## ") in HEADINGS or _PERIOD.match(line)
        if self.is_of_summaries and self.kind != "summary" and is_ours:
            self._restart("summary")  # after an excerpt, which quotes labels
        if label := LABEL.match(line):
            self._begin(label)
            return line[label.end() :]
        if frame := _FRAME.match(line):
            self._restart("summary", is_of_summaries=True)
            self.source.messages += [int(frame[1]), int(frame[2])]
            # It counts as undated until its period is read. A continued summary's period is in an earlier piece.
            self.source.undated += 1
            self.is_new = frame[3] is None
        elif _TEXT_LABEL.match(line):
            self._restart("summary", is_of_summaries=True)
            return line.partition("] ")[2]
        elif not self.source.told and (speakers := _SPEAKERS.match(line)):
            roles = zip(("user", "assistant"), speakers.groups(), strict=True)
            self.names = {role: name for role, name in roles if name}
            self.source.people = tuple(self.names.values()) if len(self.names) == 2 else ()
            return ""
        elif not self.source.told and (missing := _MISSING.match(line)):
            self.source.missing.append(missing[1])
            return ""
        return line

    def _restart(self, kind: str, *, is_of_summaries: bool = False) -> None:
        self.is_of_summaries = self.is_of_summaries or is_of_summaries
        self.kind, self.said, self.role, self.heading, self.is_code = kind, "", "", "", False
        self.listed, self.is_bare, self.left, self.failure, self.spoken = 0, False, MOST_OF_A_RESULT, None, _SPOKEN
        self.day_of_summary = ""

    def _begin(self, label: re.Match[str]) -> None:
        number, role, rest, day = label.groups()
        self.source.messages.append(int(number))
        if day and (known := _day_in(day)):
            self.day = known
            self.source.days.append(known)
        about = rest.split()
        self._restart("said")
        self.role, who = role, self.names.get(role, role.title())
        if role == "tool":
            is_kind = about[-1:] and about[-1] in ("input", "output", "error")
            self.kind = about.pop() if is_kind else "output"
            self.tool = " ".join(about)
            who = f"Tool {shorten(self.tool, LONGEST_NAME)}".strip()
        elif about[:1] == ["patch"]:
            self.kind, self.tool = "input", "patch"
            self.source.changed.update(filter(None, " ".join(about[1:]).split(", ")))
        elif about:
            self.kind = "file"
        self.said = f"{who}, {day_in_words(self.day)}" if self.day else who

    def _tell(self, text: str, role: str = "", heading: str = "", said: str = "") -> None:
        self.source.told.append(Told(text, said or self.said, role, heading))

    def _read_speech(self, line: str) -> None:
        if line.startswith(_FENCES):
            self.is_code = not self.is_code
            return
        may_ask = self.role == "user" or bool(self.source.people)
        is_listed = self.listed > 0 and LIST_MARK.match(line) is not None
        self.listed = self.listed - 1 if is_listed else 0
        is_speech = not (self.is_code or _HEADING.match(line) or _TAG.match(line))
        for sentence in sentences(line):
            asks = may_ask and self._asks(sentence)
            if self.is_bare and not is_listed and is_speech:
                before = self.source.told[-1]
                self.source.told[-1] = before._replace(text=f"{before.text} {sentence}")
            elif asks or is_listed:
                self._tell(sentence, self.role, REMEMBER)
            elif is_speech:
                self._tell(sentence, self.role)
            self.is_bare = asks and (sentence.endswith(":") or len(terms(sentence)) < 2)
            self.listed = MOST_LISTED if asks and sentence.endswith(":") else self.listed

    def _asks(self, text: str) -> bool:
        return asks_to_remember(text, people=self.source.people)

    def _read_result(self, line: str) -> None:
        says_failure = self.kind != "file" and _FAILURE.match(line) is not None
        if self.failure is None and (says_failure or self.kind == "error"):
            self.failure = len(self.source.told)
            self._tell(shorten(sentences(line)[0], LONGEST_FAILURE), "tool", FAILURES)
        elif self.failure is not None and says_failure:
            # The first line seldom says more than that there is an error.
            first = self.source.told[self.failure]
            if _MORE not in first.text:
                self.source.told[self.failure] = first._replace(
                    text=shorten(f"{first.text}{_MORE}{line}", LONGEST_FAILURE)
                )
        elif line.startswith("<system-reminder>"):
            self.left = 0
        elif self.left and self.kind != "error" and _PROSE.match(line) and not _WRITING_TOOL.search(self.tool):
            self.left -= 1
            self._tell(line, "tool")

    def _read_text(self, line: str) -> None:
        if period := _PERIOD.match(line):
            first, last, since, until, people = period.groups()
            self.source.messages += [int(first), int(last or first)]
            self.source.days += [day for text in (since, until) if text and (day := _day_in(text))]
            self.source.undated += (since is None) - self.is_new
            self.is_new = False
            self.day_of_summary = since if since and not until else ""
            names = tuple(people.split(" and ")) if people else ()
            self.source.people = self.source.people or names
            self.spoken = _spoken_by(names)
        elif heading := _HEADING.match(line):
            self.heading = _KNOWN_HEADINGS.get(heading[1].lower(), "")
        elif line.endswith(CHANGED):
            self.source.changed[LIST_MARK.sub("", line).removesuffix(CHANGED)] += 1
        elif self.heading != FILES and not _TAG.match(line) and not line.startswith(_OWN_LINES):
            # A point of a summary is one, however many sentences it has.
            is_point = self.kind == "summary" and LIST_MARK.match(line)
            for text in [LIST_MARK.sub("", line)] if is_point else sentences(line):
                self._read_point(text)

    def _read_point(self, text: str) -> None:
        said = ""
        if by := _SAID.match(text):
            said, text = by[1], text[by.end() :]
        elif by := self.spoken.match(text):
            said, text = ", ".join(filter(None, (by[1], self.day_of_summary))), text[by.end() :]
        role = next((role for role in ("user", "assistant", "system", "tool") if said.startswith(role.title())), "")
        heading = self.heading
        if not (said and heading) and role in ("", "user") and self._asks(text):
            heading = REMEMBER
        elif not heading and role == "tool" and _FAILURE.match(text):
            heading = FAILURES
        self._tell(text, role, heading, said)


def _spoken_by(names: tuple[str, ...] = ()) -> re.Pattern[str]:
    others = "".join(f"|{re.escape(name)}" for name in names)
    return re.compile(rf"(User|Assistant|System|Tool [^:\n]{{1,{LONGEST_NAME}}}{others}): ")


_SPOKEN = _spoken_by()


def _day_in(text: str) -> date | None:
    try:
        if "-" in text:
            return date.fromisoformat(text)
        number, month, year = text.split()
        return date(int(year), _MONTHS.index(month) + 1, int(number))
    except ValueError:
        return None


# Text as the demo model reads it: telling words and sentences.


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
    for line in SENTENCE_END.split(text):
        if line and not line.isspace():
            found.extend(" ".join(piece.split()) for piece in _PIECE.findall(LIST_MARK.sub("", line.strip())))
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

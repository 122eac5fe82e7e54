"""What the demo model says, kind by kind. A function that returns an empty text leaves the answer to another."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, DecimalException, localcontext
from itertools import islice, takewhile
from typing import Any

from mnesis_core.providers.demo_source import HEADINGS, rarity, sentences, shorten, terms
from mnesis_core.providers.demo_summary import choose_points

WHAT_TO_TRY = """\
- **Tell me a few things** ("My cat is called Tom. The launch is on 4 May."), then ask **"What did I say about the launch?"**
- Ask **"Summarise our conversation"**, **"What was my first message?"** or **"How many messages do you see?"**
- Ask for a sum, such as **"What is 12 * (7 + 1)?"**
- Say **"Show me markdown"** to see what answers can look like.
- Write a lot: when the context fills up, older messages become a summary. Nothing is lost, and you can look into it."""

GREETING = f"""\
Hello! I am the **demo model** of Mnesis. I run inside this server: no key, no network, no cost.

I am no large language model. I find things in our conversation and repeat them honestly, which is enough to see how \
sessions, context and memory work here. Things to try:

{WHAT_TO_TRY}"""

ABOUT = f"""\
I am the **demo model** of Mnesis, a small offline program that stands in until you choose a real model. I remember \
what is in this conversation, look it up, do sums, and summarise.

{WHAT_TO_TRY}

For testing there are commands: `!slow 80` (milliseconds per word), `!think`, `!long 500` (words), \
`!tool NAME {{"argument": 1}}`, and `!fail 401`, `429`, `500`, `cut` or `empty`."""

MARKDOWN = """\
Here is some of it.

## A list

1. Plain text, **bold**, *italic* and `code`.
2. A [link](https://commonmark.org/help/) that you may follow.

## Code

```python
def fibonacci(count: int) -> list[int]:
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:count]
```

## A table

| Level | Who writes the summary | Can it fail? |
|---|---|---|
| 1 | a model, with structure | yes, then level 2 |
| 2 | a model, in short points | yes, then level 3 |
| 3 | plain code | no |

## A diagram

```mermaid
flowchart LR
  said[What was said] --> record[(The record)]
  said --> summary[A summary]
  summary --> shown[What a model is shown]
```

> What was said stays on record. Only what a model is shown changes."""

# Openings, subjects, verbs, objects and endings of the sentences of ``prose``.
_PROSE = [
    words.split("|")
    for words in (
        "In the morning|After the rain|Near the harbour|By lamplight|On most days|Once a year|Now and then",
        "the old archivist|a patient clerk|the night train|every careful gardener|the harbour master|a travelling printer|"
        "the youngest reader|some quiet engineer|the lighthouse keeper|a retired judge|the choir",
        "writes down|remembers|sorts|carries|repairs|measures|describes|forgives|keeps|questions",
        "every letter that arrived|the names of the ships|a box of maps|three kinds of silence|the long way home|"
        "the price of salt|what the others left out|an unfinished song|the weather of last spring|a key without a door|"
        "the first draft|two small rivers|the count of steps",
        "without haste|for the record|with a smile|as agreed|twice|in plain words|before supper|with care",
    )
]

# The share of a question's telling words, by weight, that a sentence must hold to be an answer.
SMALLEST_COVERAGE = 0.4
# The characters of one message that are read, and the newest sentences that are searched.
LONGEST_MESSAGE, LONGEST_SEARCH = 400_000, 4_000
LONGEST_QUOTE = 240
LONGEST_REQUEST = 300  # Longer messages are taken as statements, not as one of the small requests below.
LONGEST_TOPIC, LONGEST_TOPIC_TEXT = 24, 100_000
SUMMARY_TOKENS = 220

_LAST_SEQ = re.compile(r'\bmessages="\d+-(\d{1,9})"')
_GAP = "[Left out here"  # The beginning of the note that stands where messages had to be left out.
# Words of this model's own messages that only repeat what others said.
_OWN_WORDS = ("Ask me later", "I find nothing about", "I searched the whole record", WHAT_TO_TRY)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_TOPIC = re.compile(r"[^\W\d_][\w'\u2019-]*[^\W_]")
_WORD_OPERATORS = (
    (_pattern(r"\b(?:times|multiplied by)\b|\u00d7"), "*"),
    (_pattern(r"\bdivided by\b|\u00f7"), "/"),
    (_pattern(r"\bplus\b"), "+"),
    (_pattern(r"\bminus\b|[\u2212\u2013]"), "-"),
)
_SUM = _pattern(
    r"^(?:please |can you |could you )*(?:what(?:['\u2019]s| is)|calculate|compute|how much is|evaluate|work out)?[ :]*"
    r"([-+(]*\d[\d .()+*/%-]*[\d)])[ =?.!]*(?:please)?[?.!]*$"
)
_HAS_OPERATION = re.compile(r"\d[ )]*[-+*/%][ (-]*\d")
_DATE = re.compile(r"\d{4}-\d\d|\d[-.]\d\d?[-.]\d{2}|^\d+-\d+-|^\d+/\d+/\d+$")
_OPERATIONS: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}

_QUESTION_START = _pattern(r"\s{0,20}(?:what|who|when|where|which|why|how|do you|did i|was|wer|wann|wo)\b")
_QUESTION_END = re.compile(r"[?\uff1f]\W{0,20}$")
_COUNT = _pattern(r"\bhow many (?:messages|turns)\b|\bhow long is (?:our|this) (?:conversation|chat)")
_FIRST = _pattern(r"\bfirst (?:message|question|thing|words)\b|\bdid (?:i|you) (?:say|write|ask) first\b")
_LAST = _pattern(r"\b(?:last|previous) (?:message|question|thing|answer)\b|\bdid (?:i|you) just (?:say|write|ask)\b")
_SUMMARISE = _pattern(r"\bsummar(?:i[sz]e|y)\b|\brecap\b|\btl;?dr\b|\bwhat have we (?:talked|spoken|discussed)")
_TOOLS = _pattern(r"\b(?:what|which|list|show)\b.*\btools?\b")
_BY_USER = _pattern(r"\b(?:did|have) i\b|\bi (?:said|told|mentioned|wrote|asked)\b|\bmy (?:first|last|previous)\b")
_BY_MODEL = _pattern(
    r"\b(?:did|have) you\b|\byou (?:said|told|mentioned|wrote|answered)\b|\byour (?:first|last|previous)\b"
)
_RECALL = _pattern(
    r"^(?:remind me|tell me (?:about|what|who|when|where|which|why|how)|find|search|look up|do you remember)\b"
)
_TASK = _pattern(
    r"^(?:please |can you |could you |will you |would you )*(?:write|translate|explain|compose|generate|create|draw|code|"
    r"implement|program|fix|improve|rewrite|refactor|draft|design|imagine|invent)\b"
)
_MARKDOWN = _pattern(r"\b(?:show|give)\b.*\bmarkdown\b|\bmarkdown (?:example|sample|demo)")
_THANKS = _pattern(r"^(?:thanks|thank you|thx|danke|merci|cheers)\b")
_ABOUT = _pattern(
    r"\b(?:who|what) are you\b|\bwhat can (?:you|i|we) (?:do|try|ask)|^help\W*$|\bhow (?:does this|do you) work"
)
_HELLO = _pattern(r"^(?:hi|hello|hey|hallo|moin|servus|hola|bonjour|good (?:morning|afternoon|evening|day))\b")
# With the most words that such a message has.
_SMALL_TALK = (
    (_MARKDOWN, LONGEST_REQUEST, MARKDOWN),
    (_ABOUT, LONGEST_REQUEST, ABOUT),
    (_HELLO, 5, GREETING),
    (_THANKS, 6, "You are welcome. Everything said here stays on record; ask me about any of it."),
)
_NOTHING_FOUND = _pattern(r"^\W*(?:no (?:match|result|hit)|nothing|0 (?:match|result|hit)|\[\]|\{\}|null|none)")
_FACT = re.compile(r"^- (?:#(\d{1,9})|a person wrote|(another session)), [^:\n]{1,40}: (.+)$", re.MULTILINE)
_SEARCH_HIT = re.compile(r"^(?:[>\- ] )?#(\d{1,9}) \(?(user|assistant)(?:, \d[^)\n]{0,80}\))?: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    number: int  # Its place in the conversation, from 1, as far as it can be known; 0 for a summary.
    role: str
    text: str
    is_quoted: bool = False  # among the passages of messages that a summary stands for, or the facts
    is_fact: bool = False
    is_elsewhere: bool = False  # a fact of another session

    @property
    def is_summary(self) -> bool:
        return self.number == 0 and not self.is_fact

    @property
    def place(self) -> str:
        if self.is_elsewhere:
            return "a fact from another session"
        if self.is_fact:
            return f"a fact from message {self.number}" if self.number else "a fact that a person wrote"
        if self.is_summary:
            return "the summary of older messages"
        return f"message {self.number}, {'you' if self.role == 'user' else 'me'}"

    def says(self, sentence: str) -> str:
        who = "you" if self.role == "user" else "I"
        source = f"{self.place} says" if self.is_summary or self.is_fact else f"{who} said in message {self.number}"
        return f"{source}: {_quoted(sentence)}"


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def conversation(messages: list[dict[str, Any]]) -> list[Said]:
    found: list[Said] = []
    number = 0
    for message in messages:
        role = str(message.get("role", ""))
        if role not in ("user", "assistant"):
            continue
        text, rest, at = text_of(message)[:LONGEST_MESSAGE], "", 0
        if text.startswith("<facts>"):
            found += (
                Said(
                    number=int(fact[1] or 0),
                    role="user",
                    text=fact[3],
                    is_quoted=True,
                    is_fact=True,
                    is_elsewhere=bool(fact[2]),
                )
                for fact in _FACT.finditer(text)
            )
            continue
        if text.startswith("<passages>") and (at := text.find("</passages>") + 1):
            lines = _SEARCH_HIT.finditer(text, 0, at)
            found += (Said(number=int(line[1]), role=line[2], text=line[3], is_quoted=True) for line in lines)
            at += len("/passages>")
        while (start := text.find("<summary ", at)) >= 0 and (end := text.find("</summary>", start)) >= 0:
            attributes, _, body = text[start:end].partition(">")
            if last_seq := _LAST_SEQ.search(attributes):
                number = int(last_seq[1])
            # The lines above the rule say what a summary is; they are no part of it.
            found.append(Said(number=0, role="user", text=(body.partition("\n---\n")[2] or body).strip()))
            rest += text[at:start]
            at = end + len("</summary>")
        own_text = (rest + text[at:]).strip()
        if own_text.startswith(_GAP):
            found.append(Said(number=0, role="user", text=""))
        elif own_text or not at:
            number += 1
            found.append(Said(number=number, role=role, text=own_text))
    return [said for said in found if said.text or said.is_summary]


def is_question(text: str) -> bool:
    return _QUESTION_START.match(text) is not None or _QUESTION_END.search(text[-100:]) is not None


def wants_recall(text: str) -> bool:
    return is_question(text) or _RECALL.search(text) is not None


def recall(question: str, earlier: list[Said], *, role: str = "", limit: int = 3) -> list[tuple[Said, str]]:
    """Return the sentences that best fit a question, best first, of ``role`` or of both when that is empty."""
    searched = (
        (said, sentence, frozenset(terms(sentence)))
        for said in reversed(earlier)
        if (said.role == role or not role or said.is_summary)
        and not (said.role == "assistant" and any(words in said.text for words in _OWN_WORDS))
        for sentence in reversed(sentences(said.text))
    )
    pool = list(islice(searched, LONGEST_SEARCH))
    wanted, weights = set(terms(question)), rarity(words for _, _, words in pool)
    rarest = max(weights.values(), default=1.0)
    total = sum(weights.get(term, rarest) for term in wanted)
    hits = []
    for said, sentence, words in pool:
        share = sum(weights[term] for term in wanted & words) / total if total else 0.0
        if share >= SMALLEST_COVERAGE:
            score = share / (1 + len(words) / 40)
            # An earlier question, or our own quoting of it, shares all words with this one and answers nothing.
            score *= 0.3 if is_question(sentence) else 1
            score *= 0.5 if said.role == "assistant" and not said.is_summary else 1
            # A passage or a fact repeats what the summary may say too: it comes second, and tells from which message it is.
            score *= 0.7 if said.is_quoted else 1
            hits.append((score, words, said, sentence))
    hits.sort(key=lambda hit: -hit[0])
    found: list[tuple[Said, str]] = []
    taken: list[tuple[bool, frozenset[str]]] = []
    for score, words, said, sentence in hits:
        if len(found) == limit or score < hits[0][0] * 0.5:
            break
        if all(kind != said.is_quoted or len(words & other) < 0.7 * len(words) for kind, other in taken):
            found.append((said, sentence))
            taken.append((said.is_quoted, words))
    return found


def small_talk(text: str) -> str:
    if len(text) > LONGEST_REQUEST:
        return ""
    size = len(text.split())
    return next((said for kind, most, said in _SMALL_TALK if size <= most and kind.search(text)), "")


def about_conversation(text: str, earlier: list[Said]) -> str:
    if len(text) > LONGEST_REQUEST:
        return ""
    earlier = [said for said in earlier if not said.is_quoted]
    if _SUMMARISE.search(text):
        return _summary_of(earlier)
    told = [said for said in earlier if not said.is_summary]
    older = " Older messages stand behind a summary." if len(told) < len(earlier) else ""
    if _COUNT.search(text):
        yours = sum(said.role == "user" for said in told)
        mine = len(told) - yours
        return f"Before this one I see {len(told)} messages: {yours} from you and {mine} from me.{older}"
    is_first = _FIRST.search(text) is not None
    if not is_first and not _LAST.search(text):
        return ""
    told = [said for said in told if said.role == (_asked_role(text) or "user")]
    if not told:
        return "There is no such message before this one."
    said = told[0 if is_first else -1]
    return f"That was {said.place}: {_quoted(said.text)}{older if is_first else ''}"


def _summary_of(earlier: list[Said]) -> str:
    requests = (_SUMMARISE, _RECALL, _MARKDOWN, _TASK, _THANKS)
    lines = [
        line
        for said in earlier
        if said.role == "user" or said.is_summary
        for line in sentences(said.text)
        if not is_question(line) and line[0] != "!" and line not in HEADINGS
        if not any(kind.search(line) for kind in requests)
    ]
    points = choose_points("\n".join(lines), SUMMARY_TOKENS)
    if not points:
        return "There is not much to summarise yet. Tell me something first."
    shown = sum(not said.is_summary for said in earlier)
    older = ", and the summary of the older ones" if shown < len(earlier) else ""
    telling = "\n".join(f"- {point.text}" for point in sorted(points, key=lambda point: point.place))
    return f"From the {shown} earlier messages that I see{older}, this stands out:\n\n{telling}"


def beyond_me(text: str) -> str:
    if len(text) > LONGEST_REQUEST or not _TASK.search(text):
        return ""
    return (
        "That takes a real language model, and I am only the demo model: I look things up, do sums and summarise. "
        "Choose another model for this conversation, or ask me about what was said in it."
    )


def list_tools(text: str, tools: list[dict[str, Any]]) -> str:
    if not tools or len(text) > LONGEST_REQUEST or not _TOOLS.search(text):
        return ""
    lines = (
        f"- `{tool.get('name', '')}`: {shorten(str(tool.get('description', '')), 160)}" for tool in functions(tools)
    )
    return "I am offered these tools:\n\n" + "\n".join(lines)


def expression_in(text: str) -> str:
    if len(text) > LONGEST_REQUEST:
        return ""
    for pattern, sign in _WORD_OPERATORS:
        text = pattern.sub(sign, text)
    found = _SUM.search(" ".join(text.replace(",", "").split()))
    if not found or not _HAS_OPERATION.search(found[1]) or _DATE.search(found[1]):
        return ""
    return found[1].strip()


def calculated(expression: str) -> str:
    try:
        with localcontext() as context:
            context.prec = 2 * LONGEST_REQUEST  # no product of what fits into a request is rounded
            value = _value(ast.parse(expression, mode="eval").body)
            is_whole = value == value.to_integral_value()
    except (SyntaxError, ValueError, RecursionError, DecimalException):
        return f"I cannot work out `{expression}`."
    result = f"{value:.0f}" if is_whole else f"{round(value, 10).normalize():f}"
    return f"`{expression}` is **{result}**."


def _value(node: ast.expr) -> Decimal:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Decimal(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("not a sum")


def recalled(text: str, earlier: list[Said]) -> str:
    lines = [said.says(sentence) for said, sentence in recall(text, earlier, role=_asked_role(text))]
    if len(lines) > 1:
        return f"This is what I find about {_topics(text)}:\n\n" + "\n".join(f"- {line}" for line in lines)
    return f"{lines[0][0].upper()}{lines[0][1:]}" if lines else ""


def search_pattern(text: str) -> str:
    # A name tells most, else the longest word. Its stem finds its other forms too.
    named = [term for word in _TOPIC.findall(text)[1:] if word[0].isupper() for term in terms(word)]
    return max(named or terms(text), key=len, default="")


def not_found(text: str, earlier: list[Said]) -> str:
    if not terms(text):
        return "I can only look things up in our conversation. Ask me about something that was said, by its name."
    shown = sum(not (said.is_summary or said.is_quoted) for said in earlier)
    where = f"the {shown} earlier messages that I see" if shown != 1 else "the one earlier message that I see"
    older = " Older messages stand behind a summary, which does not mention it." if shown < len(earlier) else ""
    return (
        f"I find nothing about {_topics(text)} in {where if shown else 'our conversation so far'}.{older} "
        "As the demo model I know only what is said here: tell me, and ask again."
    )


def reflection(text: str, earlier: list[Said]) -> str:
    if not terms(text):
        return "I have noted that. Tell me something, then ask me what you said about it."
    related = recall(text, [said for said in earlier if said.role == "user" or said.is_summary], limit=1)
    link = "".join(f" It goes with {said.place}: {_quoted(sentence)}" for said, sentence in related)
    return f"Noted: {_quoted(text)}{link}\n\nAsk me later what you said about {_topics(text, 2, 'or')}."


def from_tool_results(question: str, messages: list[dict[str, Any]]) -> str:
    names = {
        str(call.get("id")): str(call.get("function", {}).get("name", "tool"))
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    latest = list(takewhile(lambda message: message.get("role") == "tool", reversed(messages)))
    return "\n\n".join(
        _from_result(names.get(str(message.get("tool_call_id")), "tool"), text_of(message).strip(), question)
        for message in reversed(latest)
    )


def _from_result(name: str, result: str, question: str) -> str:
    if not result or (len(result) < 200 and _NOTHING_FOUND.search(result)):
        return f"The tool `{name}` found nothing."
    if result.lower().startswith("error"):
        return f"The tool `{name}` failed: {shorten(result, LONGEST_QUOTE)}"
    if "\n" not in result and len(result) <= 120 and not result.startswith(("{", "[")):
        return f"The tool `{name}` says: **{result}**"
    if hits := [Said(number=int(hit[1]), role=hit[2], text=hit[3]) for hit in _SEARCH_HIT.finditer(result)]:
        told = [said for said in hits if said.text.strip() != question.strip()]
        if not told:
            return f"I searched the whole record: nothing else was said about {_topics(question)}."
        best = recall(question, told) or [(said, said.text) for said in told[:2]]
        lines = "\n".join(f"- {said.says(sentence)}" for said, sentence in best)
        return f"I searched the whole record for {_topics(question)}:\n\n{lines}"
    found = recall(question, [Said(number=1, role="tool", text=readable(result))])
    if not found:
        return f"The tool `{name}` says:\n\n```\n{result[:600]}\n```" + ("\n(shortened)" if len(result) > 600 else "")
    lines = "\n".join(f"- {_quoted(sentence)}" for _, sentence in found)
    return f"The tool `{name}` finds this about {_topics(question)}:\n\n{lines}"


def readable(result: str) -> str:
    """Return JSON as lines of text, one for each value in it, and anything else as it is."""
    try:
        waiting = [json.loads(result)]
    except (ValueError, RecursionError):
        return result
    lines: list[str] = []
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            waiting.extend(reversed(list(item.values()) if isinstance(item, dict) else item))
        else:
            lines.append(str(item))
    return "\n".join(lines)


def reasoning(text: str, shown: list[Said]) -> str:
    kind = "a question" if wants_recall(text) else "something to take note of"
    return (
        f"The last message has {len(text.split())} words and looks like {kind}. I see {len(shown)} messages in all. "
        f"Its subject seems to be {_topics(text)}. I look for sentences that share its rarest words, then answer.\n"
    )


def functions(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [tool.get("function") or {} for tool in tools]


def _asked_role(text: str) -> str:
    return "assistant" if _BY_MODEL.search(text) else "user" if _BY_USER.search(text) else ""


def _topics(text: str, count: int = 3, join: str = "and") -> str:
    found = Counter(
        word for word in _TOPIC.findall(text[:LONGEST_TOPIC_TEXT]) if len(word) <= LONGEST_TOPIC and terms(word)
    )
    # Names and long words tell more than the rest; the order of writing settles what is equal.
    best = sorted(found, key=lambda word: -(found[word] + word[0].isupper() + min(len(word), 10) / 10))[:count]
    named = [f"**{word}**" for word in sorted(best, key=text.find)]
    return f" {join} ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named or ["that"])


def _quoted(text: str) -> str:
    return f"“{shorten(sentences(text)[0] if len(text) > LONGEST_QUOTE else text, LONGEST_QUOTE)}”"


def prose(words: int) -> str:
    """Write ``words`` words of prose, the same for the same number; each sentence can be searched for by its page."""
    openings, subjects, verbs, objects, endings = _PROSE
    written: list[str] = []
    page = 0
    while len(written) < words:
        # The lists' lengths share no factor that matters, so it takes thousands of sentences to come round.
        subject = f"{openings[page % 7]}, on page {page + 1}, {subjects[page * 3 % 11]} {verbs[page * 7 % 10]}"
        written += f"{subject} {objects[page * 5 % 13]}, {endings[(page * 3 + page // 8) % 8]}.".split()
        page += 1
        if page % 5 == 0:
            written[-1] += "\n\n"
    text = " ".join(written[:words]).replace("\n\n ", "\n\n").strip()
    return text if text.endswith(".") else text + "."

"""What the demo model says, kind by kind. Every function is pure; an empty text means: not mine to answer."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, DecimalException, localcontext
from typing import Any

from mnesis_core.providers.demo_extract import HEADINGS, choose_points, summarise
from mnesis_core.providers.demo_prose import ABOUT, GREETING, MARKDOWN
from mnesis_core.providers.demo_recall import Hit, Said, is_question, recall, text_of
from mnesis_core.providers.demo_text import sentences, shorten, terms

LONGEST_QUOTE = 240
"""Characters."""
LONGEST_REQUEST = 300
"""Characters; longer messages are taken as something told, not as one of the small requests below."""
LONGEST_TOPIC, LONGEST_TOPIC_TEXT = 24, 100_000
SUMMARY_TOKENS = 220

_TOPIC = re.compile(r"[^\W\d_][\w'\u2019-]*[^\W_]")
_WORD_OPERATORS = (
    (re.compile(r"\b(?:times|multiplied by)\b|\u00d7", re.IGNORECASE), "*"),
    (re.compile(r"\bdivided by\b|\u00f7", re.IGNORECASE), "/"),
    (re.compile(r"\bplus\b", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b|[\u2212\u2013]", re.IGNORECASE), "-"),
)
_SUM = re.compile(
    r"^(?:please |can you |could you )*(?:what(?:['\u2019]s| is)|calculate|compute|how much is|evaluate|work out)?[ :]*"
    r"([-+(]*\d[\d .()+*/%-]*[\d)])[ =?.!]*(?:please)?[?.!]*$",
    re.IGNORECASE,
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


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_GREETING = _pattern(r"^(?:hi|hello|hey|hallo|moin|servus|hola|bonjour|good (?:morning|afternoon|evening|day))\b")
_THANKS = _pattern(r"^(?:thanks|thank you|thx|danke|merci|cheers)\b")
_ABOUT = _pattern(
    r"\b(?:who|what) are you\b|\bwhat can (?:you|i|we) (?:do|try|ask)|^help\W*$|\bhow (?:does this|do you) work"
)
_MARKDOWN = _pattern(r"\b(?:show|give)\b.*\bmarkdown\b|\bmarkdown (?:example|sample|demo)")
_COUNT = _pattern(r"\bhow many (?:messages|turns)\b|\bhow long is (?:our|this) (?:conversation|chat)")
_FIRST = _pattern(r"\bfirst (?:message|question|thing|words)\b|\bdid (?:i|you) (?:say|write|ask) first\b")
_LAST = _pattern(r"\b(?:last|previous) (?:message|question|thing|answer)\b|\bdid (?:i|you) just (?:say|write|ask)\b")
_SUMMARISE = _pattern(r"\bsummar(?:i[sz]e|y)\b|\brecap\b|\btl;?dr\b|\bwhat have we (?:talked|spoken|discussed)")
_TOOLS = _pattern(r"\b(?:what|which|list|show)\b.*\btools?\b")
_BY_USER = _pattern(r"\bdid i\b|\bhave i\b|\bi (?:said|told|mentioned|wrote|asked)\b|\bmy (?:first|last|previous)\b")
_BY_MODEL = _pattern(
    r"\bdid you\b|\bhave you\b|\byou (?:said|told|mentioned|wrote|answered)\b|\byour (?:first|last|previous)\b"
)
_RECALL = _pattern(
    r"^(?:remind me|tell me (?:about|what|who|when|where|which|why|how)|find|search|look up|do you remember)\b"
)
_SEARCH_HIT = re.compile(
    r"^- message (\d{1,9}) \([^)\n]{0,80}\b(user|assistant)\b(?![^)\n]{0,80}\btool\b)[^)\n]{0,80}\)[^:\n]{0,80}: (.*)$",
    re.MULTILINE,
)
_TASK = _pattern(
    r"^(?:please |can you |could you |will you |would you )*(?:write|translate|explain|compose|generate|create|draw|code|"
    r"implement|program|fix|improve|rewrite|refactor|draft|design|imagine|invent)\b"
)
_NOTHING_FOUND = _pattern(r"^\W*(?:no (?:match|result|hit)|nothing|0 (?:match|result|hit)|\[\]|\{\}|null|none)")


def small_talk(text: str) -> str:
    """Greetings, thanks, what it is, what markdown looks like."""
    if len(text) > LONGEST_REQUEST:
        return ""
    if _MARKDOWN.search(text):
        return MARKDOWN
    if _ABOUT.search(text):
        return ABOUT
    if _GREETING.search(text) and len(text.split()) <= 5:
        return GREETING
    if _THANKS.search(text) and len(text.split()) <= 6:
        return "You are welcome. Everything said here stays on record; ask me about any of it."
    return ""


def about_conversation(text: str, earlier: list[Said]) -> str:
    """The first or the last message, how many there are, and a summary of them."""
    if _SUMMARISE.search(text[:LONGEST_REQUEST]):
        return _summary_of(text, earlier)
    if len(text) > LONGEST_REQUEST:
        return ""
    if _COUNT.search(text):
        return _counted(earlier)
    wants_first = _FIRST.search(text) is not None
    if not wants_first and not _LAST.search(text):
        return ""
    told = [said for said in earlier if not said.is_summary and said.role == _asked_role(text, "user")]
    if not told:
        return "There is no such message before this one."
    said = told[0] if wants_first else told[-1]
    older = " Older messages stand behind a summary." if wants_first and any(s.is_summary for s in earlier) else ""
    return f"That was {said.place}: {_quoted(said.text)}{older}"


def beyond_me(text: str) -> str:
    """What to say to a task that takes a real model: writing, translating, explaining."""
    if len(text) > LONGEST_REQUEST or not _TASK.search(text):
        return ""
    return (
        "That takes a real language model, and I am only the demo model: I look things up, do sums and summarise. "
        "Choose another model for this conversation, or ask me about what was said in it."
    )


def asks_for_tools(text: str) -> bool:
    """Whether it wants to know which tools there are."""
    return len(text) <= LONGEST_REQUEST and _TOOLS.search(text) is not None


def list_tools(tools: list[dict[str, Any]]) -> str:
    """The tools that are offered, with the first line of what they say of themselves."""
    lines = [
        f"- `{function.get('name', '')}`: {shorten(str(function.get('description', '')), 160)}"
        for function in functions(tools)
    ]
    return "I am offered these tools:\n\n" + "\n".join(lines)


def expression_in(text: str) -> str:
    """The sum that the whole message asks for, in plain signs; empty when it asks for something else."""
    if len(text) > LONGEST_REQUEST:
        return ""
    for pattern, sign in _WORD_OPERATORS:
        text = pattern.sub(sign, text)
    found = _SUM.search(" ".join(text.replace(",", "").split()))
    if not found or not _HAS_OPERATION.search(found[1]) or _DATE.search(found[1]):
        return ""
    return found[1].strip()


def calculated(expression: str) -> str:
    """The value of a sum."""
    try:
        with localcontext() as context:
            context.prec = 2 * LONGEST_REQUEST  # no product of what fits into a request is rounded
            value = _value(ast.parse(expression, mode="eval").body)
            is_whole = value == value.to_integral_value()
    except (SyntaxError, ValueError, RecursionError, DecimalException):
        return f"I cannot work out `{expression}`."
    return (
        f"`{expression}` is **{value:.0f}**."
        if is_whole
        else f"`{expression}` is **{round(value, 10).normalize():f}**."
    )


def wants_recall(text: str) -> bool:
    """Whether it asks for something that may have been said."""
    return is_question(text) or _RECALL.search(text) is not None


def recalled(text: str, earlier: list[Said]) -> str:
    """What was said about the subject of a question; empty when nothing was."""
    hits = recall(text, earlier, role=_asked_role(text, ""))
    if not hits:
        return ""
    if len(hits) == 1:
        return f"{_source_of(hits[0]).capitalize()}: {_quoted(hits[0].sentence)}"
    lines = [f"- {_source_of(hit)}: {_quoted(hit.sentence)}" for hit in hits]
    return f"This is what I find about {_topics(text)}:\n\n" + "\n".join(lines)


def search_pattern(text: str) -> str:
    """The most telling word of a question, to search the record for; empty when it has none."""
    # A name tells most, else the longest word. Its stem finds its other forms too.
    named = [term for word in _TOPIC.findall(text)[1:] if word[0].isupper() for term in terms(word)]
    return max(named or terms(text), key=len, default="")


def not_found(text: str, earlier: list[Said]) -> str:
    """Nothing was said about it."""
    if not terms(text):
        return "I can only look things up in our conversation. Ask me about something that was said, by its name."
    shown = sum(not said.is_summary for said in earlier)
    where = f"the {shown} earlier messages that I see" if shown != 1 else "the one earlier message that I see"
    older = " Older messages stand behind a summary, which does not mention it." if shown < len(earlier) else ""
    return (
        f"I find nothing about {_topics(text)} in {where if shown else 'our conversation so far'}.{older} "
        "As the demo model I know only what is said here: tell me, and ask again."
    )


def reflection(text: str, earlier: list[Said]) -> str:
    """A short answer to something told: what was understood, and what it goes with."""
    points = choose_points(text, 60)
    if not terms(text) or (not points and len(text) > LONGEST_REQUEST):
        return "I have noted that. Tell me something, then ask me what you said about it."
    related = recall(text, [said for said in earlier if said.role == "user" or said.is_summary], limit=1)
    link = f" It goes with {related[0].said.place}: {_quoted(related[0].sentence)}" if related else ""
    if len(text) > LONGEST_REQUEST:
        count = len(text.split())
        return f"I have read your {count:,} words, about {_topics(text)}. Most telling: {_quoted(points[0].text)}{link}"
    return f"Noted: {_quoted(text)}{link}\n\nAsk me later what you said about {_topics(text, 2, 'or')}."


def from_tool_results(question: str, messages: list[dict[str, Any]]) -> str:
    """An answer from what the tools said, which stands at the messages' end."""
    names = {
        str(call.get("id")): str(call.get("function", {}).get("name", "tool"))
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    results: list[str] = []
    for message in reversed(messages):
        if message.get("role") != "tool":
            break
        name = names.get(str(message.get("tool_call_id")), "tool")
        results.insert(0, _from_result(name, text_of(message).strip(), question))
    return "\n\n".join(results)


def reasoning(text: str, shown: list[Said]) -> str:
    """Some thinking aloud."""
    kind = "a question" if wants_recall(text) else "something to take note of"
    return (
        f"The last message has {len(text.split())} words and looks like {kind}. I see {len(shown)} messages in all. "
        f"Its subject seems to be {_topics(text)}. I look for sentences that share its rarest words, then answer.\n"
    )


def functions(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools' own descriptions, without their wrapping."""
    return [tool.get("function") or {} for tool in tools]


def tool_names(tools: list[dict[str, Any]]) -> list[str]:
    """What the tools are called."""
    return [str(function.get("name", "")) for function in functions(tools)]


def first_parameter(function: dict[str, Any]) -> str:
    """The name of a tool's first argument."""
    parameters = function.get("parameters") or {}
    names = [*(parameters.get("required") or ()), *(parameters.get("properties") or ())]
    return str(names[0]) if names else "expression"


def _summary_of(text: str, earlier: list[Said]) -> str:
    if len(text) > LONGEST_REQUEST:
        return f"In short:\n\n{summarise(text, SUMMARY_TOKENS)}"
    told = [said for said in earlier if said.role == "user" or said.is_summary]
    lines = [line for said in told for line in sentences(said.text) if not is_question(line) and not _is_request(line)]
    points = choose_points("\n".join(lines), SUMMARY_TOKENS)
    if not points:
        return "There is not much to summarise yet. Tell me something first."
    lines = [f"- {point.text}" for point in sorted(points, key=lambda point: point.index)]
    shown = sum(not said.is_summary for said in earlier)
    older = ", and the summary of the older ones" if shown < len(earlier) else ""
    return f"From the {shown} earlier messages that I see{older}, this stands out:\n\n" + "\n".join(lines)


def _is_request(line: str) -> bool:
    return (
        line.startswith("!")
        or line in HEADINGS
        or any(kind.search(line) for kind in (_SUMMARISE, _RECALL, _MARKDOWN, _TASK, _THANKS))
    )


def _counted(earlier: list[Said]) -> str:
    mine = sum(said.role == "assistant" and not said.is_summary for said in earlier)
    yours = sum(said.role == "user" and not said.is_summary for said in earlier)
    summaries = sum(said.is_summary for said in earlier)
    older = (
        f" {summaries} {'summary stands' if summaries == 1 else 'summaries stand'} for older ones." if summaries else ""
    )
    return f"Before this one I see {yours + mine} messages: {yours} from you and {mine} from me.{older}"


def _from_result(name: str, result: str, question: str) -> str:
    if not result or (len(result) < 200 and _NOTHING_FOUND.search(result)):
        return f"The tool `{name}` found nothing."
    if result.lower().startswith("error"):
        return f"The tool `{name}` failed: {shorten(result, LONGEST_QUOTE)}"
    if "\n" not in result and len(result) <= 120 and not result.startswith(("{", "[")):
        return f"The tool `{name}` says: **{result}**"
    if found := _from_search(result, question):
        return found
    hits = recall(question, [Said(number=1, role="tool", text=readable(result))])
    if not hits:
        return f"The tool `{name}` says:\n\n```\n{result[:600]}\n```" + ("\n(shortened)" if len(result) > 600 else "")
    lines = [f"- {_quoted(hit.sentence)}" for hit in hits]
    return f"The tool `{name}` finds this about {_topics(question)}:\n\n" + "\n".join(lines)


def _from_search(result: str, question: str) -> str:
    """An answer from the hits of a search of the record; empty when it is no such search."""
    hits = [Said(number=int(hit[1]), role=hit[2], text=hit[3]) for hit in _SEARCH_HIT.finditer(result)]
    told = [said for said in hits if said.text.strip() != question.strip()]
    if not hits:
        return ""
    if not told:
        return f"I searched the whole record: nothing else was said about {_topics(question)}."
    best = recall(question, told) or [Hit(said=said, sentence=said.text, score=0) for said in told[:2]]
    lines = [f"- {_source_of(hit)}: {_quoted(hit.sentence)}" for hit in best]
    return f"I searched the whole record for {_topics(question)}:\n\n" + "\n".join(lines)


def readable(result: str) -> str:
    """JSON as lines of text, one for each value in it; anything else as it is."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    lines: list[str] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            waiting.extend(reversed(list(item.values()) if isinstance(item, dict) else item))
        else:
            lines.append(str(item))
    return "\n".join(lines)


def _value(node: ast.expr) -> Decimal:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Decimal(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("not a sum")


def _asked_role(text: str, default: str) -> str:
    if _BY_MODEL.search(text):
        return "assistant"
    return "user" if _BY_USER.search(text) else default


def _source_of(hit: Hit) -> str:
    if hit.said.is_summary:
        return "the summary of older messages says"
    return f"{'you' if hit.said.role == 'user' else 'I'} said in message {hit.said.number}"


def _topics(text: str, count: int = 3, join: str = "and") -> str:
    """The telling words of a text as they were written, for a person."""
    found = Counter(
        word for word in _TOPIC.findall(text[:LONGEST_TOPIC_TEXT]) if len(word) <= LONGEST_TOPIC and terms(word)
    )
    # Names and long words tell more than the rest; the order of writing settles what is equal.
    best = sorted(found, key=lambda word: -(found[word] + word[0].isupper() + min(len(word), 10) / 10))[:count]
    named = [f"**{word}**" for word in sorted(best, key=text.find)]
    if not named:
        return "that"
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} {join} {named[-1]}"


def _quoted(text: str) -> str:
    return f"“{shorten(sentences(text)[0] if len(text) > LONGEST_QUOTE else text, LONGEST_QUOTE)}”"

"""Prompt templates: what they may do, and that nothing they say takes long, much memory, or gets out."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mnesis_core.errors import InvalidTemplate
from mnesis_core.maps.template import LONGEST_PROMPT, compile_template

PERSON = {"name": "Ada", "items": ["x", "y"], "age": 36, "tags": {"b": 2, "a": 1}, "none": None}


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("{{ item }}", '{"name": "Ada", "items": ["x", "y"], "age": 36, "tags": {"b": 2, "a": 1}, "none": null}'),
        ("Say {{ item.name }}!\n", "Say Ada!\n"),
        ("{{ item['name'] }} {{ item.items[1] }} {{ item.items[-1] }}", "Ada y y"),
        ("{{ item.name[:2] }}{{ item.items[1:] }}", 'Ad["y"]'),
        ("{% for x in item.items %}{{ loop.index }}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "1x, 2y"),
        ("{% for k, v in item.tags|items %}{{ k }}={{ v }};{% endfor %}", "b=2;a=1;"),
        ("{% for k in item.tags|sort %}{{ k }}{% else %}none{% endfor %}", "ab"),
        ("{% if item.age > 18 and 'x' in item.items %}grown{% else %}not{% endif %}", "grown"),
        ("{% if 18 < item.age < 30 %}young{% elif item.missing %}odd{% else %}older{% endif %}", "older"),
        ("{{ item.missing|default('nothing') }}{{ item.none }}", "nothingnull"),
        ("{{ item.name is string }}{{ item.missing is defined }}", "truefalse"),
        ("{{ item.name|upper|lower|title }} {{ item.items|join(', ') }} {{ item.age * 2 - 1 }}", "Ada x, y 71"),
        ("{{ item.name|truncate(2) }} {{ item.items|length }} {{ item.tags|tojson }}", 'A… 2 {"b": 2, "a": 1}'),
        ("{# not said #}{% raw %}{{ kept }}{% endraw %}{{ item.age }}", "{{ kept }}36"),
        ("<b> & ' {{ item.name }}", "<b> & ' Ada"),
    ],
)
def test_what_a_template_says(text: str, prompt: str) -> None:
    assert compile_template(text).render(PERSON) == prompt


@pytest.mark.parametrize("value", ["word", 7, 1.5, True, None, [1, 2], {}, "\0\ud800‮"])
def test_an_item_is_any_json(value: Any) -> None:
    assert compile_template("{{ item }}|").render(value).endswith("|")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must use 'item'"),
        ("no item at all", "must use 'item'"),
        ("{# {{ item }} #}", "must use 'item'"),
        ("{% raw %}{{ item }}{% endraw %}", "must use 'item'"),
        ("{% for item in [1] %}{{ item }}{% endfor %}", "must use 'item'"),
        ("{{ item }} {{ other }}", "no 'other' here"),
        ("{{ item", "unexpected end"),
        ("{% if item %}", "end"),
        ("{{ item|lipsum }}", "no filter 'lipsum'; there are: capitalize"),
        ("{{ item is callable }}", "no test 'callable'"),
        ("{{ item.items() }}", "write item|items"),
        ("{{ item.__class__.__mro__[1].__subclasses__() }}", r"f\(\); for the entries"),
        ("{{ item ** 9 }}", r"no \*\*"),
        ("{{ item ~ item }}", "no ~"),
        ("{% set x = item %}{{ x }}", "no {% set %}"),
        ("{% macro m() %}{{ item }}{% endmacro %}", "no {% macro %}"),
        ("{% include item %}", "no {% include %}"),
        ("{% import item as x %}", "no {% import %}"),
        ("{% extends item %}", "no {% extends %}"),
        ("{% filter upper %}{{ item }}{% endfilter %}", "no {% filter %}"),
        ("{% for x in item if x %}{% endfor %}", "takes no condition"),
        ("{% for x in item recursive %}{% endfor %}", "takes no condition"),
        ("{{ item|join(*item) }}", "must be written one by one"),
        ("{% autoescape true %}{{ item }}{% endautoescape %}", "no {% autoescape %}"),
        ("{{ item }}" * 3_000, "too large"),
        ("{% if item %}" * 3_000 + "{% endif %}" * 3_000, "too deeply"),
        ("{{ " + "(" * 3_000 + "item" + ")" * 3_000 + " }}", "too deeply"),
        ("{{ " + "not " * 3_000 + "item }}", "too deeply"),
        ("{{ item" + "|lower" * 500 + " }}", "too deeply"),
        ("{% for a in item %}" * 5 + "{% endfor %}" * 5, "too deeply"),
        ("x" * 200_001 + "{{ item }}", "longer than 200,000"),
        ("{%" * 90_000 + "{{ item }}", "line 1"),
        ("{#" * 90_000 + "{{ item }}", "omment"),
    ],
)
def test_what_is_no_template_is_refused_with_its_place(text: str, words: str) -> None:
    started = time.perf_counter()
    with pytest.raises(InvalidTemplate, match=words):
        compile_template(text)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("text", "item", "words"),
    [
        ("{{ item.missing }}", {}, "there is no 'missing' in an empty object"),
        ("{{ item.txt }}", {"id": 1, "text": "a"}, r"there is no 'txt', only 'id', 'text'\.$"),
        ("{{ item.x }}", dict.fromkeys("abcdefghij"), "only 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', …"),
        ("{{ item.x }}", {"k" * 10_000: 1, "\ud800\x00": 2}, rf"only '{'k' * 40}', '\\ud800\\x00'\.$"),
        ("{{ item[3] }}", [1, 2], "a list has no 3"),
        ("{{ item.x }}", None, "null has no 'x'"),
        ("{% for x in item %}{{ loop.next }}{% endfor %}", [1], "the loop has no 'next'"),
        ("{{ item.a.b.c }}", {}, "there is no 'a'"),
        ("{{ item.x }}", "word", "a text has no 'x'"),
        ("{{ item.__class__ }}", {}, "there is no '__class__'"),
        ("{{ item.format }}", "{0.__class__}", "a text has no 'format'"),
        ("{{ item|items }}", [1], "needs an object, and this is a list"),
        ("{{ item|sort }}", [1, "a"], "different kinds cannot be sorted"),
        ("{{ item + 'a' }}", "b", r"\+ needs two numbers"),
        ("{{ 'a' * item }}", 10**9, r"\* needs two numbers"),
        ("{{ 'a' % item }}", 1, "% needs two numbers"),
        ("{{ 1 / item }}", 0, "division by zero"),
        (
            "{{ item|join(item, 1, [true]) }}",
            "a",
            r"'join' does not work with these values \(a text, a text, a number, a list\)",
        ),
        ("{{ item[::0] }}", [1], r"'\[:\]' does not work with these values \(a list, null, null, a number\)"),
        ("{{ 1 in item }}", None, r"'in' does not work with these values \(a number, null\)"),
        ("{{ -item }}", "b", "- needs a number"),
        ("{% for x in item %}{{ loop }}{% endfor %}", [1], "the loop cannot be printed"),
        ("{% for x in item %}{% endfor %}", 7, "a loop needs a list, and this is a number"),
        ("{{ item < 'a' }}", 1, r"'<' does not work with these values \(a number, a text\)"),
        ("{{ item is lt('a') }}", {}, r"'<' does not work with these values \(an object, a text\)"),
        ("{{ item }}", float("1e300"), None),
    ],
)
def test_an_item_that_does_not_fit_is_an_error_that_names_why(text: str, item: Any, words: str | None) -> None:
    template = compile_template(text)
    if words is None:
        assert template.render(item)
        return
    with pytest.raises(InvalidTemplate, match=words):
        template.render(item)


LONG = ["word"] * 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("{% for a in item %}{% for b in item %}{% endfor %}{% endfor %}", LONG),
        ("{% for a in item %}{% for b in item %}{% for c in item %}x{% endfor %}{% endfor %}{% endfor %}", LONG),
        ("{% for a in item %}{% if 'no' in item %}{% endif %}{% endfor %}", LONG),
        ("{% for a in item %}{% if item == item %}{% endif %}{% endfor %}", LONG),
        ("{% for a in item %}{{ item|sort|length }}{% endfor %}", LONG),
        ("{% for a in item %}{{ item[1:]|length }}{% endfor %}", LONG),
        ("{{ item|join(item|join) }}", LONG),
        ("{{ item|replace('a', item) }}", "a" * 400_000),
        ("{{ item" + "|replace('a', 'aaaaaaaaaa')" * 30 + " }}", "a"),
        ("{% for a in item %}{{ item }}{% endfor %}", LONG),
        ("{{ item }}{{ item }}{{ item }}", "a" * LONGEST_PROMPT),
    ],
)
def test_a_template_can_neither_go_on_for_long_nor_grow_large(text: str, item: Any) -> None:
    template, started = compile_template(text), time.perf_counter()
    with pytest.raises(InvalidTemplate, match=r"too long|longer than"):
        template.render(item)
    assert time.perf_counter() - started < 10


def test_a_long_item_is_no_problem() -> None:
    rows = [{"id": number, "text": "some words " * 5} for number in range(10_000)]
    said = compile_template("{% for row in item %}{{ row.id }}: {{ row.text|trim }}\n{% endfor %}").render(rows)
    assert said.count("\n") == 10_000


def test_a_template_is_the_same_every_time() -> None:
    assert compile_template("{{ item }}") is compile_template("{{ item }}")
    one, other = compile_template("{{ item }}1"), compile_template("{{ item }}2")
    assert (one.render("x"), other.render("x"), one.render("y")) == ("x1", "x2", "y1")

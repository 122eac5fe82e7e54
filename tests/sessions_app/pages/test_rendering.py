"""Text as the pages show it: hostile Markdown, hidden characters, sizes."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest

from mnesis_core.records import LiveText
from sessions_app.live import delta_frame
from sessions_app.pages.formats import format_characters, format_count, format_duration, format_money
from sessions_app.pages.markdown import LEXERS, MARKDOWN_LIMIT, highlight_code, outline, render_markdown, show_invisible

ALLOWED_TAG = re.compile(
    r"</?(?:a|blockquote|br|code|del|div|em|figcaption|figure|h[3-6]|hr|li|ol|p|pre|s|span|strong|table|tbody|td|th|thead|tr|ul)\b"
)


def test_markdown_becomes_html_with_headings_below_the_page_s_own() -> None:
    html = render_markdown("# Plan\n\n- **one**\n- `two`\n\n| a | b |\n|:--|--:|\n| 1 | 2 |")
    assert "<h3>Plan</h3>" in html
    assert "<li><strong>one</strong></li>" in html
    assert '<td align="right">2</td>' in html


def test_a_long_answer_has_an_outline_and_a_short_one_or_one_of_two_headings_has_none() -> None:
    filling = "word " * 400
    text = f"## One *and* `<b>`\n\n{filling}\n\n### \u202eTwo &amp; more\n\n```\n# no heading\n```\n\n> ## Three\n\n{filling}"
    html, headings = outline(render_markdown(text), "part_1")
    assert [(one.id, one.text, one.depth) for one in headings] == [
        ("part_1-h1", "One and <b>", 0),
        ("part_1-h2", "\u27e8U+202E\u27e9Two & more", 1),
        ("part_1-h3", "Three", 0),
    ]
    assert '<h4 id="part_1-h1">One <em>and</em> <code>&lt;b&gt;</code></h4>' in html
    assert re.sub(r' id="part_1-h\d"', "", html) == render_markdown(text)
    for other in ("# One\n\n# Two\n\n# Three", f"# One\n\n# Two\n\n{filling * 2}"):
        assert outline(render_markdown(other), "part_1") == (render_markdown(other), ())


def test_a_single_line_break_stays_one() -> None:
    assert "one<br>" in render_markdown("one\ntwo")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<a href='javascript:alert(1)'>x</a>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](java\nscript:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](vbscript:x)",
        "<javascript:alert(1)>",
        '[x](https://e.example "\\" onmouseover=alert(1) ")',
        '```"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
        "<svg><style><img src=x onerror=alert(1)></style></svg>",
        "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
        "![x](https://e.example/track.png)",
        "[x]: javascript:alert(1)\n\n[x]",
    ],
)
def test_hostile_markup_stays_text(text: str) -> None:
    html = render_markdown(text)
    tags = re.findall(r"<[^>]*>?", html)
    assert all(ALLOWED_TAG.match(tag) for tag in tags), html
    assert not any(re.search(r"\son\w+\s*=|style=|src=", re.sub(r'"[^"]*"', '""', tag)) for tag in tags), html
    assert all(address.startswith(("http://", "https://", "mailto:")) for address in re.findall(r'href="([^"]*)', html))


def test_code_has_colours_of_our_own_classes_where_its_language_is_known() -> None:
    html = render_markdown('```py\ndef f(): # "<b>"\n\treturn 1\n```')
    assert '<span class="hl-keyword">def</span>' in html
    assert "&lt;b&gt;" in html
    assert (
        render_markdown("```klingon\ndef\n```")
        == '<figure data-language="klingon"><figcaption>klingon</figcaption><pre><code>def\n</code></pre></figure>\n'
    )
    assert "hl-" not in render_markdown("```py\n" + "x = 1\n" * 5_000 + "```")


@pytest.mark.parametrize("language", sorted(set(LEXERS.values())))
def test_no_lexer_is_kept_busy_or_changes_a_letter(language: str) -> None:
    unit = "<a b='$x' /* # \"((( `{{ \\ -- @ [[ ]]> 0x1e5 é\t"
    text = "\n".join((unit * 20)[:900] for _ in range(20))
    began = time.process_time()
    html = highlight_code(text, language)
    assert html is not None
    assert time.process_time() - began < 2
    assert unescape(re.sub(r'<span class="hl-[a-z]+">|</span>', "", html)) == text


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("so $a_1*b*c_2$ it", ">a_1*b*c_2</annotation>"),
        (r"so \(a_1 \% b\) it", r">a_1 \% b</annotation>"),
        ("$$x_1 = <y>$$", ">x_1 = &lt;y&gt;</annotation>"),
        ("$$\nx\n= y\n- z\n$$", ">x\n= y\n- z</annotation>"),
        ("\\[\nx * y * z\n\\]", ">x * y * z</annotation>"),
        ("> $$\n> x\n> $$", ">x</annotation>"),
    ],
)
def test_a_formula_is_drawn_and_keeps_its_tex(text: str, tex: str) -> None:
    html = render_markdown(text)
    assert tex in html
    assert "<math" in html
    assert "<em>" not in html


@pytest.mark.parametrize(
    "text", ["from $5 to $10", "$5-$10", "a $ b $ c", "$$$$", "$$\n\nx\n$$", "\\[ never", "`$a$`", "$a\n\nb$"]
)
def test_what_is_no_formula_stays_what_it_is(text: str) -> None:
    assert "math" not in render_markdown(text)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["$", "$$\n", "\\[\n", "\\(", "$a ", "\\[x\n\n", "$$x ", "> $$\n"])
def test_a_text_full_of_openings_ends_in_time(unit: str) -> None:
    began = time.process_time()
    render_markdown((unit * MARKDOWN_LIMIT)[:MARKDOWN_LIMIT])
    assert time.process_time() - began < 5


def test_a_diagram_stays_code_and_is_called_one() -> None:
    html = render_markdown("```mermaid\ngraph TD; a-->b\n```")
    assert "mermaid: a diagram, as its text" in html
    assert "graph TD; a--&gt;b" in html


def test_a_table_scrolls_in_a_box_of_its_own() -> None:
    html = render_markdown("| a |\n|---|\n| 1 |")
    assert html.startswith('<div class="table-scroll"><table>')
    assert html.rstrip().endswith("</table></div>")


def test_nothing_that_was_written_is_hidden() -> None:
    html = render_markdown(
        "![alt](https://e.example/i.png)\n\n[//]: # (a secret)\n\n```py and more\nx\n```\n\n<!-- c -->"
    )
    for text in ("alt", "a secret", "py and more", "&lt;!-- c --&gt;"):
        assert text in html
    assert "<img" not in html


def test_links_open_elsewhere_and_vouch_for_nothing() -> None:
    html = render_markdown("[a](https://e.example) <https://b.example> [m](mailto:a@b.example) [r](/admin/)")
    assert html.count('rel="noopener nofollow"') == html.count('target="_blank"') == 3
    assert "[r](/admin/)" in html


def test_characters_that_hide_or_reorder_are_spelled_out() -> None:
    assert show_invisible("a\u202eb\u200bc") == "a⟨U+202E⟩b⟨U+200B⟩c"
    assert "⟨U+202E⟩" in render_markdown("file\u202ecod.exe")
    assert show_invisible("héllo 👩‍👩‍👧 می‌خواهم\n\tx") == "héllo 👩‍👩‍👧 می‌خواهم\n\tx"


def test_nul_and_lone_surrogates_can_be_sent_as_utf_8() -> None:
    assert show_invisible("a\x00b\ud800c").encode()
    assert render_markdown("a\x00b\udfff").encode()


def test_a_delta_is_as_long_as_the_text_it_tells_of() -> None:
    # Two halves that came in two pieces: as one character they would move every place after them.
    halves = "a\ud83d" + "\ude00 b"
    frame = delta_frame(LiveText(message_id="msg_1", part_index=0, part_type="text", text=halves), 1)
    assert (frame["offset"], frame["text"]) == (1, "\ufffd\ufffd b")


@pytest.mark.parametrize("text", [">" * 3_000 + "x", "".join(" " * level + "- a\n" for level in range(200))])
def test_text_nested_too_deeply_is_shown_whole_as_it_is(text: str) -> None:
    html = render_markdown(text)
    assert html.startswith("<figure><pre>")
    assert len(html) >= len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    ["[", "[a](b", "*a ", "**a _b ", "`a``b```", "<", "|a|\n|-|\n|x\n", "- a\n", "\\", "![[]()", "&#x", "<a ", "~a~~"],
)
def test_the_longest_text_that_is_read_as_markdown_is_read_quickly_whatever_it_holds(pattern: str) -> None:
    started = time.process_time()
    render_markdown(pattern * (MARKDOWN_LIMIT // len(pattern)))
    # Measured at 0.01 to 0.45 s; a quadratic parser would take minutes.
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "?"),
        (0, "0"),
        (999, "999"),
        (1_000, "1k"),
        (12_444, "12.4k"),
        (99_950, "100k"),
        (999_600, "1M"),
        (1_234_567, "1.2M"),
    ],
)
def test_counts_are_short(number: int | None, text: str) -> None:
    assert format_count(number) == text


def test_sizes_times_and_money_are_words() -> None:
    assert format_characters(1) == "1 character"
    assert format_characters(2_000) == "2k characters"
    assert [format_duration(seconds) for seconds in (None, 0.0004, 0.34, 2.44, 185, 180, 7_800, 7_200)] == [
        "", "0 ms", "340 ms", "2.4 s", "3 min 05 s", "3 min", "2 h 10 min", "2 h",
    ]  # fmt: skip
    assert [format_money(micros) for micros in (None, 0, 12, 1_234, 2_500_000)] == [
        "",
        "$0",
        "$0.000012",
        "$0.001234",
        "$2.50",
    ]


def test_items_of_lists_are_tasks_where_they_say_so() -> None:
    html = render_markdown("- [ ] one\n- [x] two **b**\n- [X]three\n- [ ]\n- \\[ ] escaped\n\n1. [x] four\n\n[ ] no\n")
    assert html.count('<li class="task">') == 3
    assert '<li class="task">\N{BALLOT BOX} one</li>' in html
    assert '<li class="task">\N{BALLOT BOX WITH CHECK} two <strong>b</strong></li>' in html
    assert "<li>[ ] escaped</li>" in html
    assert "<p>[ ] no</p>" in html

"""Formulas as MathML: what is drawn, what stays TeX, and that no formula says or does anything else."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time

import pytest

from sessions_app.pages.markdown import (
    ATTRIBUTES,
    DRAWN_LIMIT,
    LONGEST,
    MARKDOWN_LIMIT,
    MATH_CLASSES,
    MOST_LEVELS,
    MOST_OPENINGS,
    TAGS,
    VALUES,
    draw_formula,
    render_markdown,
)
from tests.support.waiting import PATIENCE_SECONDS

TAG = re.compile(r"<(/?)([^\s>/]*)((?:\s[^>]*)?)>")
ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
PAYLOADS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</annotation></semantics></math><script>alert(1)</script>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<mtext><mglyph><svg><mtext><textarea><a title='</textarea><img src onerror=alert(1)>'>",
    "<annotation-xml encoding='text/html'><svg onload=alert(1)></annotation-xml>",
    "<mi xlink:href='javascript:alert(1)'>x</mi><maction actiontype=statusline>y</maction>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "]]><!--><b>",
    "&lt;script&gt;&#x3c;script&#x3e;",
)
WRAPS = (
    "%s", r"\text{%s}", r"\textbf{%s}", r"\mathrm{%s}", r"\operatorname{%s}", r"\tag{%s}", r"\label{%s}", r"\ref{%s}", r"\color{%s}x",
    r"\begin{%s}x\end{%s}", r"\begin{array}{%s}x\end{array}", r"\hspace{%s}", r"\href{%s}{x}", r"\genfrac{%s}{x}{1pt}{1}{a}{b}",
    r"\begin{align}x\tag{%s}\end{align}", r"\left%s x\right.", r"\frac{\text{%s}}{2}", r"\newcommand{\a}{%s}\a", r"\verb|%s|",
)  # fmt: skip
PIECES = (
    *("{", "}", "^", "_", "&", r"\\ ", "[", "]", "(", "'", '"', "<", ">", "x", "1", " ", "#1", r"\{", "\x00", "\u202e", "é", "😀", "="),
    *(rf"\{name} " for name in ("frac", "sqrt", "left", "right", "text", "hat", "not", "over", "color", "mathbf", "middle", "big", "sum")),
    *(rf"\{end}{{{name}}}" for end in ("begin", "end") for name in ("align", "matrix", "cases", "aligned", "gather", "multline")),
    *("{red}", "{c|c}", r"\limits", r"\prescript", r"\substack", r"\boxed", r"\cancel", r"\binom", r"\xrightarrow", r"\tag{1}", r"\hline"),
)  # fmt: skip


def assert_harmless(mathml: str) -> None:
    """Nothing but the elements and attributes that are named, well nested, with text between them."""
    for _, name, attributes in TAG.findall(mathml):
        assert name in TAGS, mathml
        for key, value in ATTRIBUTE.findall(attributes):
            is_class = (name, key) == ("mtd", "class") and set(value.split()) <= set(MATH_CLASSES.values())
            assert key in ATTRIBUTES.get(name, ()) or value in VALUES.get(name, {}).get(key, ()) or is_class, mathml
    assert "<" not in TAG.sub("", mathml)


@pytest.mark.parametrize(
    ("tex", "shown"),
    [
        (r"\frac{a}{b}", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"),
        (r"x_1^2", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        (r"\binom{n}{k}", '<mfrac linethickness="0">'),
        (r"\begin{aligned}a&=b\end{aligned}", '<mtd class="math-right"><mi>a</mi></mtd>'),
        (r"\begin{array}{l|r}a&b\end{array}", '<mtd class="math-left math-line-right">'),
        (r"50\%", "<mi>%</mi>"),
        (r"a < b", "<mo>&lt;</mo>"),
    ],
)
def test_a_formula_becomes_mathml(tex: str, shown: str) -> None:
    mathml = draw_formula(tex, is_block=False)
    assert mathml is not None
    assert shown in mathml
    assert_harmless(mathml)


def test_a_formula_by_itself_is_drawn_larger() -> None:
    assert 'display="block"' in render_markdown("$$\nx\n$$")
    assert "display" not in render_markdown("so $x$ it")


@pytest.mark.parametrize(
    "tex",
    [
        r"\foo", r"\frac{a}", "{", "a & b", "x^a^b", r"\href{https://e.example}{x}", r"\includegraphics{x}",
        r"E = mc^2 % a secret", r"\phantom{secret}", r"\hphantom{s}", r"\label{a}x", r"\eqref{secret}",
        r"\newcommand{\a}{\a\a}\a", r"\def\a{x}\a", r"\let\a\b", r"\providecommand\a{x}\a",
        "x" * (LONGEST + 1), "{" * (MOST_OPENINGS + 1) + "x" + "}" * (MOST_OPENINGS + 1), r"\sqrt{" * MOST_LEVELS + "x" + "}" * MOST_LEVELS,
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_or_would_hide_something_stays_tex(tex: str) -> None:
    assert draw_formula(tex, is_block=True) is None


def test_a_formula_that_stays_tex_is_shown_whole() -> None:
    assert render_markdown(r"so $\foo<b>$ it") == '<p>so <code class="math">\\foo&lt;b&gt;</code> it</p>\n'
    assert '<figure class="math"><pre><code>' in render_markdown("$$\nx % a secret\n$$")
    assert "a secret" in render_markdown("$$\nx % a secret\n$$")


@pytest.mark.parametrize("wrap", WRAPS)
def test_hostile_text_in_a_formula_stays_text(wrap: str) -> None:
    for payload in PAYLOADS:
        tex = wrap.replace("%s", payload)
        assert_harmless(draw_formula(tex, is_block=True) or "")
        html = render_markdown(f"$${tex}$$\n\nso $${tex}$$ and ${tex}$")
        names = {name for _, name, _ in TAG.findall(html)}
        assert names <= TAGS | {"p", "figure", "pre", "code", "br"}, html
        assert not re.search(r"\s(?:on\w+|style|href|src)=", " ".join(rest for _, _, rest in TAG.findall(html))), html


def test_formulas_of_anything_are_harmless_and_end() -> None:
    random_ = random.Random(7)
    drawn = 0
    for _ in range(4_000):
        tex = "".join(random_.choices(PIECES, k=random_.choice((3, 5, 9, 30))))
        mathml = draw_formula(tex + "}" * max(0, tex.count("{") - tex.count("}")), is_block=True)
        drawn += mathml is not None
        assert_harmless(mathml or "")
    assert drawn > 50


@pytest.mark.slow
def test_no_formula_goes_deeper_than_a_small_stack() -> None:
    # A stack that overflows ends the process, so another one tries: the parser goes down once for each opening.
    program = f"""
import threading
from sessions_app.pages.markdown import draw_formula
units = [("{{", "}}"), ("^{{", "}}"), ("\\\\frac{{1}}{{", "}}"), ("\\\\sqrt ", ""), ("\\\\left(", "\\\\right)"), ("\\\\sum_{{", "}}"),
         ("\\\\mathbf{{", "}}"), ("\\\\color{{red}}", ""), ("\\\\hat ", ""), ("\\\\begin{{matrix}}", "\\\\end{{matrix}}"),
         ("\\\\begin{{aligned}}", "\\\\end{{aligned}}"), ("\\\\sqrt[", "]x"), ("\\\\displaystyle ", ""), ("{{a\\\\over ", "}}")]
def draw():
    for begin, end in units:
        for count in range(1, {MOST_OPENINGS + 2}):
            draw_formula("a" + begin * count + "x" + end * count, is_block=True)
    print("done")
threading.stack_size(1 << 20)
thread = threading.Thread(target=draw)
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


@pytest.mark.parametrize("unit", ["$'$ ", "$x$ ", "$\\sqrt{x}$ ", "$$'''''''$$\n\n", "$\\frac{\\frac12}{\\frac34}$ "])
def test_a_text_full_of_formulas_is_bounded(unit: str) -> None:
    began = time.process_time()
    html = render_markdown((unit * MARKDOWN_LIMIT)[:MARKDOWN_LIMIT])
    # Measured at 0.1 to 0.4 s.
    assert time.process_time() - began < 10
    assert len(html) < DRAWN_LIMIT + 30 * MARKDOWN_LIMIT


@pytest.mark.parametrize("tex", ["x+" * 50_000, "{" * 100_000, "\\frac" * 20_000, "'" * 100_000, "x^" * 50_000])
def test_a_formula_of_100_kb_costs_no_seconds(tex: str) -> None:
    began = time.process_time()
    assert draw_formula(tex, is_block=True) is None
    assert time.process_time() - began < 1

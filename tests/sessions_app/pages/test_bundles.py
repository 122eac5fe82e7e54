"""The files that pages ask for in place of many: one script with all modules, and style sheets with those that they import."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from pygments.lexers.javascript import JavascriptLexer
from pygments.token import Comment

from sessions_app.pages import bundles

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "static" / "js"


@pytest.fixture(scope="module")
def script() -> str:
    return bundles.bundle_scripts(SCRIPTS)


def test_no_import_or_export_is_left_in_the_script_but_of_modules_that_come_by_themselves(script: str) -> None:
    assert not re.search(r"^\s*(import|export)\b", script, re.M)
    assert {*re.findall(r'import\("\./([^"]+)"\)', script)} == bundles.APART


def test_each_module_that_another_loads_is_in_the_script_with_what_is_taken_from_it(script: str) -> None:
    modules = dict(re.findall(r'^  "([\w/-]+\.js)": \(\) => \{\n(.*?)^\},$', script, re.M | re.S))
    assert {*re.findall(r'\$(?:load|later)\("([^"]+)"\)', script)} <= {*modules}
    for taken, name in re.findall(r'^const \{ ([^}]*) \} = \$load\("([^"]+)"\);$', script, re.M):
        given = re.findall(r"^return \{ (.*) \};$", modules[name], re.M)[-1].split(", ")
        assert {part.split(":")[0] for part in taken.split(", ")} <= {*given}, name


def test_files_that_a_module_names_are_there_from_the_script_s_place(script: str) -> None:
    named = re.findall(r'new URL\("([^"]+)", import\.meta\.url\)', script)
    assert len(named) == script.count("import.meta") == 2
    assert all((SCRIPTS / path).is_file() for path in named)


def test_no_module_has_a_name_of_the_script_s_own(script: str) -> None:
    sources = [path.read_text() for path in SCRIPTS.rglob("*.js")]
    assert not any(name in source for source in sources for name in ("$modules", "$load", "$later"))


def test_only_comments_are_left_out(script: str) -> None:
    for path in SCRIPTS.rglob("*.js"):
        source = path.read_text()
        comments = {at for at, kind, _ in JavascriptLexer().get_tokens_unprocessed(source) if kind in Comment}
        assert {found.end() - 2 for found in re.finditer(r"^ *//", source, re.M)} <= comments, path.name
    assert not re.search(r"^ *//", script, re.M)


def test_pages_load_modules_with_the_script_alone() -> None:
    pages = [path for path in (ROOT / "templates").rglob("*.html") if "admin" not in path.parts]
    assert [path.name for path in pages if 'type="module"' in path.read_text()] == ["base.html"]


def test_each_module_that_a_page_names_is_there(script: str) -> None:
    named = [
        name
        for path in (ROOT / "templates").rglob("*.html")
        for block in re.findall(r"\{% block (?:sidebar_module|modules) %\}(.*?)\{% endblock %\}", path.read_text())
        for name in re.sub(r"\{%.*?%\}", " ", block).split()
    ]
    assert len(named) > 20
    assert {name for name in named if f'"{name}.js": () =>' not in script} == set()


def test_a_style_sheet_has_what_it_imports_in_its_place(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one" / "a.css").write_text('/* Both */\n@import "../other/b.css";\np { color: red; }\n')
    (tmp_path / "other" / "b.css").write_text("b { color: blue; }\n")
    assert bundles.inline_styles(tmp_path / "one" / "a.css") == "/* Both */\nb { color: blue; }\n\np { color: red; }\n"


def test_a_style_sheet_has_its_font_in_it() -> None:
    sheet = Path(str(finders.find("css/base.css"))).read_text()
    [font] = re.findall(r"url\(\"data:font/woff2;base64,([^\"]+)\"\)", sheet)
    assert b64decode(font) == (SCRIPTS.parent / "vendor" / "inter" / "inter.woff2").read_bytes()


def test_pages_get_the_bundle_and_what_is_not_bundled_as_it_is() -> None:
    paths = ("js/site.js", "css/session/page.css", "js/support/api.js")
    found = {path: Path(str(finders.find(path))).read_text() for path in paths}
    assert '"session/page.js": () =>' in found["js/site.js"]
    assert "@import" not in found["css/session/page.css"]
    assert found["js/support/api.js"] == (SCRIPTS / "support" / "api.js").read_text()

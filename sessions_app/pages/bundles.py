"""Static files with their imports put in: one script for all pages, and one file for each style sheet, with its font.

A browser then asks once instead of once a module, in as many rounds as imports are deep. The modules stay the source; in
development (``DEBUG``) they are served as they are.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

from mnesis_core.text import text_digest

SCRIPT = "js/site.js"
# Loaded by themselves: their libraries are larger than all the rest, and needed by few pages.
APART = frozenset({"blocks/markdown.js"})
# Never part of a page: classic scripts of the head, and those of sandboxed frames.
OUTSIDE = frozenset({"site.js", "head.js", "blocks/diagram-frame.js", "blocks/preview-frame.js"})

_STATIC_IMPORT = re.compile(r'^import (?:\{ (?P<names>[^}]*) \} from )?"(?P<path>\.{1,2}/[\w/.-]+\.js)";$', re.M)
_DYNAMIC_IMPORT = re.compile(r'\bimport\("(?P<path>\.{1,2}/[\w/.-]+\.js)"\)')
_ADDRESS = re.compile(r'\bnew URL\("(?P<path>\.{1,2}/[^"]+)", import\.meta\.url\)')
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (?P<name>\w+))", re.M)
_COMMENT = re.compile(r"^ *//.*\n", re.M)
_FONT = re.compile(r'url\("(?P<path>[\w/.-]+\.woff2)"\)')
_STYLE_IMPORT = re.compile(r'^@import "(?P<path>[\w/.-]+\.css)";$', re.M)

_NAMED_IMPORT = "import(`./${name}.js`)"
# Names with a dollar sign, which no module has, so that none hides them.
_LOAD = """const $loaded = {};
const $load = (name) => ($loaded[name] ??= $modules[name]());
const $later = (name) => Promise.resolve(name).then($load);
"""


def bundle_scripts(folder: Path) -> str:
    """Return ``site.js`` with every other module below this folder in it, each run when it is first asked for, and once."""
    modules = {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.js"))}
    inside = (name for name in modules if name not in OUTSIDE | APART)
    wrapped = "".join(f'  "{name}": () => {{\n{_wrap(name, modules[name])}}},\n' for name in inside)
    run = _COMMENT.sub("", modules["site.js"]).replace(_NAMED_IMPORT, "$later(`${name}.js`)")
    return f"const $modules = {{\n{wrapped}}};\n{_LOAD}{run}"


def _wrap(name: str, source: str) -> str:
    def resolve(found: re.Match[str]) -> str:
        return normpath(join(dirname(name), found["path"]))

    def load_now(found: re.Match[str]) -> str:
        names = f"const {{ {found['names'].replace(' as ', ': ')} }} = " if found["names"] else ""
        return f'{names}$load("{resolve(found)}");'

    def load_later(found: re.Match[str]) -> str:
        module = resolve(found)
        return f'import("./{module}")' if module in APART else f'$later("{module}")'

    def locate(found: re.Match[str]) -> str:  # from site.js, where the module is run
        return f'new URL("{resolve(found)}", import.meta.url)'

    exported = ", ".join(found["name"] for found in _EXPORT.finditer(source))
    body = _DYNAMIC_IMPORT.sub(load_later, _STATIC_IMPORT.sub(load_now, _COMMENT.sub("", source)))
    return f"{_EXPORT.sub('', _ADDRESS.sub(locate, body))}return {{ {exported} }};\n"


def inline_styles(sheet: Path) -> str:
    """Return a style sheet with the sheets and fonts that it names in their places."""

    def embed_font(found: re.Match[str]) -> str:
        # Not a file of its own: it would be one more request, and come after the first text is drawn in another font.
        font = (sheet.parent / found["path"]).read_bytes()
        return f'url("data:font/woff2;base64,{b64encode(font).decode()}")'

    text = _FONT.sub(embed_font, sheet.read_text())
    return _STYLE_IMPORT.sub(lambda found: inline_styles(sheet.parent / found["path"]), text)


class BundleFinder(BaseFinder):
    """Finds the bundles, before Django's own finders find their sources."""

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        for path in self._bundles:
            yield path, self._storage

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        if path not in self._bundles:
            return []
        found = self._storage.path(path)
        return [found] if find_all else found

    def check(self, **kwargs: Any) -> Any:
        return []

    @cached_property
    def _bundles(self) -> dict[str, str]:
        static = settings.BASE_DIR / "static"
        sheets = (
            path for path in (static / "css").rglob("*.css") if re.search(r"@import|@font-face", path.read_text())
        )
        styles = {sheet.relative_to(static).as_posix(): inline_styles(sheet) for sheet in sheets}
        return {SCRIPT: bundle_scripts(static / "js")} | styles

    @cached_property
    def _storage(self) -> FileSystemStorage:
        """The bundles as files. Each version has a folder, so that a process of the last one finds its own until it ends."""
        digest = text_digest("".join(self._bundles.values()))
        folder = settings.STATIC_ROOT.with_name("bundles") / digest[:12]
        for path, text in self._bundles.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_name(f"{place.name}.{os.getpid()}")  # several processes may start at once
            draft.write_text(text)
            draft.replace(place)
        return FileSystemStorage(location=folder)

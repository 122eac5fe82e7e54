"""Static files with their imports put in: one script for all pages, and one file for each style sheet.

A browser then asks once instead of once a module, in as many rounds as imports are deep. The modules stay the source; in
development (``DEBUG``) they are served as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

SCRIPT = "js/site.js"
# Loaded by themselves: their libraries are larger than all the rest, and needed by few pages.
APART = frozenset({"markdown.js"})
# Never part of a page: classic scripts of the head, and those of sandboxed frames.
OUTSIDE = frozenset({"site.js", "head.js", "diagram-frame.js", "preview-frame.js"})

_STATIC_IMPORT = re.compile(r'^import (?:\{ (?P<names>[^}]*) \} from )?"\./(?P<module>[\w-]+\.js)";$', re.M)
_DYNAMIC_IMPORT = re.compile(r'\bimport\("\./(?P<module>[\w-]+\.js)"\)')
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (?P<name>\w+))", re.M)
_COMMENT = re.compile(r"^ *//.*\n", re.M)
_STYLE_IMPORT = re.compile(r'^@import "(?P<sheet>[\w-]+\.css)";$', re.M)

# Names with a dollar sign, which no module has, so that none hides them.
_RUN = """const $loaded = {};
const $load = (name) => ($loaded[name] ??= $modules[name]());
for (const name of document.body.dataset.modules.trim().split(/\\s+/)) {
  try {
    $load(`${name}.js`);
  } catch (error) {
    reportError(error);
  }
}
"""


def bundle_scripts(folder: Path) -> str:
    """Return ``site.js`` with every module below this folder in it, each run when it is first asked for, and once."""
    modules = {path.name: path.read_text() for path in sorted(folder.glob("*.js")) if path.name not in OUTSIDE | APART}
    wrapped = "".join(f'  "{name}": () => {{\n{_wrap(source)}}},\n' for name, source in modules.items())
    return f"const $modules = {{\n{wrapped}}};\n{_RUN}"


def _wrap(source: str) -> str:
    def load_now(found: re.Match[str]) -> str:
        names = f"const {{ {found['names'].replace(' as ', ': ')} }} = " if found["names"] else ""
        return f'{names}$load("{found["module"]}");'

    def load_later(found: re.Match[str]) -> str:
        if found["module"] in APART:
            return found[0]
        return f'Promise.resolve().then(() => $load("{found["module"]}"))'

    exported = ", ".join(found["name"] for found in _EXPORT.finditer(source))
    body = _DYNAMIC_IMPORT.sub(load_later, _STATIC_IMPORT.sub(load_now, _COMMENT.sub("", source)))
    return f"{_EXPORT.sub('', body)}return {{ {exported} }};\n"


def inline_styles(sheet: Path) -> str:
    """Return a style sheet with those that it imports in their places."""
    return _STYLE_IMPORT.sub(lambda found: inline_styles(sheet.with_name(found["sheet"])), sheet.read_text())


class BundleFinder(BaseFinder):
    """Finds the bundles, before Django's own finders find their sources. Each process has its own, for as long as it runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._folder = TemporaryDirectory(prefix="mnesis-static-")
        self._storage = FileSystemStorage(location=self._folder.name)
        self._paths: tuple[str, ...] = ()

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        for path in self._paths or self._write():
            yield path, self._storage

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        if path not in (self._paths or self._write()):
            return []
        found = self._storage.path(path)
        return [found] if find_all else found

    def check(self, **kwargs: Any) -> Any:
        return []

    def _write(self) -> tuple[str, ...]:
        static = settings.BASE_DIR / "static"
        sheets = (path for path in (static / "css").glob("*.css") if "@import" in path.read_text())
        bundles = {SCRIPT: bundle_scripts(static / "js")} | {
            f"css/{sheet.name}": inline_styles(sheet) for sheet in sheets
        }
        for path, text in bundles.items():
            place = Path(self._folder.name) / path
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        self._paths = (*bundles,)
        return self._paths

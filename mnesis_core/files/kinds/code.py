"""Source in one of twelve languages: what it defines, imports and exports, each with its line.

A language is a row in ``LANGUAGES``: which of ``_Outline``'s methods takes which nodes of its syntax tree.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tree_sitter import Node, Tree
from tree_sitter_language_pack import get_parser

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.detection import detect
from mnesis_core.files.kinds import text
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_BYTES = 2_097_152  # A syntax tree takes some thirty times as much memory as its source.
MOST_SECONDS = 10  # Processor time for one tree; a whole file of real source takes three seconds.
PIECE_BYTES = 65_536
HEADER_CHARACTERS = 160
HEADER_BYTES = 2_000  # Bytes of a definition's source of which its header is made.
MOST_MEMBERS = 12
FILE_DEPTH = 3  # The deepest a variable of the whole file is in the tree: ``export const name = …``.
_COMMENT_LINES = re.compile(r"(?m)^[ \t]*(//.*|/\*.*|\*.*|#?\[.*\]|@\w+(\([^()\n]*\))?)[ \t]*$")
_FUNCTIONS = ("arrow_function", "function_expression", "generator_function", "function")
_NAMING_FIELDS = ("name", "property", "left", "type")
_IMPORTING_FIELDS = ("source", "path", "argument")
_EXPORTED = re.compile(r"(module\.)?exports\b\.?")


@dataclass(slots=True)
class _Definition:
    line: int
    header: str
    name: str
    is_function: bool
    members: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        members = f": {listed(dict.fromkeys(self.members), most=MOST_MEMBERS)}" if self.members else ""
        return f"{self.line}: {self.header}{members}"


@dataclass(slots=True)
class _Outline:
    """What was found in a tree. Its public methods take a node, with its depth, and return whether to visit its children."""

    data: bytes
    importing: tuple[str, ...]
    definitions: list[_Definition] = field(default_factory=list)
    functions: int = 0
    spaces: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    # Each with its depth in the tree; the innermost last.
    holders: list[tuple[int, _Definition]] = field(default_factory=list)

    def holder(self, node: Node, depth: int) -> bool:
        """Take what has a line with the names of what is defined in it: a class, a trait."""
        self.holders.append((depth, self._define(node, self._header(node, node))))
        return True

    def bodied(self, node: Node, depth: int) -> bool:
        """Take a holder if it has a body; without one, it is only a mention of its name."""
        return node.child_by_field_name("body") is None or self.holder(node, depth)

    def space(self, node: Node, _depth: int) -> bool:
        """Take what is named, and in which definitions have lines of their own: a package, a namespace."""
        self.spaces.append(self._name(node) or self._without_keyword(node))
        return True

    def type(self, node: Node, _depth: int) -> bool:
        """Take what has a line that shows all of it: an enumeration, an alias."""
        header = shown(self._decoded(node.start_byte, node.end_byte), characters=HEADER_CHARACTERS)
        name = self._name(node)
        self._define(node, header if name in header else f"{header} {name}")
        return False

    def function(self, node: Node, _depth: int) -> bool:
        """Take what has a line, or a name in its holder's line; its content is not visited."""
        self._define_function(node, node)
        return False

    def declared(self, node: Node, depth: int) -> bool:
        if (function := _function_of(node, None)) is not None:
            self._define_function(node, function)
        elif depth <= FILE_DEPTH or self.holders:
            self.value(node, depth)
        return False

    def assigned(self, node: Node, depth: int) -> bool:
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        if (function := _function_of(node, value)) is not None:
            self._define_function(node, function)
            return False
        if node.type == "assignment_expression":
            name = self._name(node)
            if (match := _EXPORTED.match(name)) and value is not None:
                self.exports.append(name[match.end() :] or self._text(value))
        elif (depth <= FILE_DEPTH or self.holders) and "require(" not in self._text(value):
            self.value(node, depth)
        return True

    def value(self, node: Node, _depth: int) -> bool:
        """Take what is named: a constant, a variable of the whole file, a field, a macro."""
        names = self.holders[-1][1].members if self.holders else self.values
        names.append(self._name(node))
        return True

    def imported(self, node: Node, _depth: int) -> bool:
        found = next((found for name in _IMPORTING_FIELDS if (found := node.child_by_field_name(name))), None)
        self.imports.append(self._without_keyword(node) if found is None else self._text(found).strip("\"'<>"))
        return False

    def command(self, node: Node, _depth: int) -> bool:
        """Take a call; it is an import if it calls one of the language's ``importing``."""
        names = ("function", "method", "name")
        called = next((found for name in names if (found := node.child_by_field_name(name))), None)
        if self._text(called) not in self.importing:
            return True
        self.imports.append(self._without_keyword(node))
        return False

    def export(self, node: Node, _depth: int) -> bool:
        declared = node.child_by_field_name("declaration")
        if declared is None:
            self.exports.append(self._without_keyword(node))
            return True
        within = [declared] if declared.child_by_field_name("name") else declared.named_children
        names = [name for one in within if (name := self._name(one))]
        self.exports.extend(names or ["default"])
        return True

    def _define(self, node: Node, header: str, *, is_function: bool = False) -> _Definition:
        definition = _Definition(node.start_point[0] + 1, header, self._name(node), is_function)
        self.definitions.append(definition)
        return definition

    def _define_function(self, node: Node, function: Node) -> None:
        self.functions += 1
        if self.holders:
            self.holders[-1][1].members.append(self._name(node))
        else:
            self._define(node, self._header(node, function), is_function=True)

    def _name(self, node: Node) -> str:
        found: Node | None = node
        while found is not None and (inner := found.child_by_field_name("declarator")) is not None:
            found = inner
        if found is node:
            found = next((found for name in _NAMING_FIELDS if (found := node.child_by_field_name(name))), None)
            found = found or next(
                (child for child in node.named_children if "identifier" in child.type or child.type == "name"), None
            )
        return self._text(found)

    def _without_keyword(self, node: Node) -> str:
        """Return what follows the first word: ``import``, ``package``."""
        return re.sub(r"^[#\s]*[\w.]+", "", self._text(node), count=1).replace('"', "").strip(" '<>();")

    def _header(self, node: Node, function: Node) -> str:
        body = function.child_by_field_name("body")
        before = self._decoded(node.start_byte, node.end_byte if body is None else body.start_byte)
        return shown(before.rstrip(" \n\t;{"), characters=HEADER_CHARACTERS)

    def _text(self, node: Node | None) -> str:
        return "" if node is None else shown(self._decoded(node.start_byte, node.end_byte))

    def _decoded(self, start: int, end: int) -> str:
        # Lines that are only comments or attributes are left out.
        return _COMMENT_LINES.sub("", self.data[start : min(end, start + HEADER_BYTES)].decode("utf-8", "ignore"))


def _function_of(node: Node, value: Node | None) -> Node | None:
    if value is not None and value.type in _FUNCTIONS:
        return value
    inner = node.child_by_field_name("declarator")
    while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
        inner = inner.child_by_field_name("declarator") or next(iter(inner.named_children), None)
    return node if inner is not None and inner.type == "function_declarator" else None


Taker = Callable[[_Outline, Node, int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    title: str
    # The types of nodes that each method takes.
    nodes: Mapping[Any, str]  # keyed by methods, whose exact types differ in the names of parameters
    importing: tuple[str, ...] = ()


_JAVASCRIPT = {
    _Outline.holder: "class_declaration",
    _Outline.function: "function_declaration generator_function_declaration method_definition",
    _Outline.assigned: "field_definition variable_declarator assignment_expression",
    _Outline.imported: "import_statement",
    _Outline.command: "call_expression",
    _Outline.export: "export_statement",
}
_TYPESCRIPT = _JAVASCRIPT | {
    _Outline.holder: "class_declaration abstract_class_declaration interface_declaration",
    _Outline.type: "enum_declaration type_alias_declaration",
    _Outline.space: "internal_module module",
    _Outline.function: "function_declaration generator_function_declaration method_definition function_signature"
    " method_signature abstract_method_signature",
    _Outline.assigned: "field_definition variable_declarator assignment_expression public_field_definition",
    _Outline.value: "property_signature",
}
_RUST = {
    _Outline.type: "struct_item enum_item union_item type_item",
    _Outline.holder: "trait_item impl_item",
    _Outline.space: "mod_item",
    _Outline.function: "function_item function_signature_item macro_definition",
    _Outline.value: "const_item static_item",
    _Outline.imported: "use_declaration extern_crate_declaration",
}
_GO = {
    _Outline.space: "package_clause",
    _Outline.type: "type_spec type_alias",
    _Outline.function: "function_declaration method_declaration",
    _Outline.value: "const_spec var_spec",
    _Outline.imported: "import_spec",
}
_JAVA = {
    _Outline.holder: "class_declaration interface_declaration enum_declaration record_declaration"
    " annotation_type_declaration",
    _Outline.function: "method_declaration constructor_declaration",
    _Outline.space: "package_declaration",
    _Outline.imported: "import_declaration",
}
_C = {
    _Outline.function: "function_definition",
    _Outline.declared: "declaration field_declaration",
    _Outline.bodied: "struct_specifier union_specifier enum_specifier",
    _Outline.type: "type_definition",
    _Outline.value: "preproc_def preproc_function_def",
    _Outline.imported: "preproc_include",
}
_CPP = _C | {
    _Outline.bodied: "struct_specifier union_specifier enum_specifier class_specifier",
    _Outline.space: "namespace_definition",
    _Outline.type: "type_definition concept_definition alias_declaration",
    _Outline.imported: "preproc_include using_declaration",
}
_CSHARP = {
    _Outline.space: "namespace_declaration file_scoped_namespace_declaration",
    _Outline.holder: "class_declaration interface_declaration struct_declaration record_declaration",
    _Outline.type: "enum_declaration delegate_declaration",
    _Outline.function: "method_declaration constructor_declaration local_function_statement",
    _Outline.value: "property_declaration",
    _Outline.imported: "using_directive",
}
_RUBY = {_Outline.bodied: "class module", _Outline.function: "method singleton_method", _Outline.command: "call"}
_PHP = {
    _Outline.space: "namespace_definition",
    _Outline.holder: "class_declaration interface_declaration trait_declaration enum_declaration",
    _Outline.function: "function_definition method_declaration",
    _Outline.value: "const_element",
    _Outline.imported: "namespace_use_declaration require_expression require_once_expression include_expression"
    " include_once_expression",
}
_SHELL = {_Outline.function: "function_definition", _Outline.value: "variable_assignment", _Outline.command: "command"}
LANGUAGES: dict[str, Language] = {
    "javascript": Language(title="JavaScript", nodes=_JAVASCRIPT, importing=("require", "import")),
    "typescript": Language(title="TypeScript", nodes=_TYPESCRIPT, importing=("require",)),
    "tsx": Language(title="TypeScript with JSX", nodes=_TYPESCRIPT, importing=("require",)),
    "rust": Language(title="Rust", nodes=_RUST),
    "go": Language(title="Go", nodes=_GO),
    "java": Language(title="Java", nodes=_JAVA),
    "c": Language(title="C", nodes=_C),
    "cpp": Language(title="C++", nodes=_CPP),
    "csharp": Language(title="C#", nodes=_CSHARP),
    "ruby": Language(title="Ruby", nodes=_RUBY, importing=("require", "require_relative", "load")),
    "php": Language(title="PHP", nodes=_PHP),
    "shell": Language(title="Shell", nodes=_SHELL, importing=("source", ".")),
}


def explore(source: Source) -> Findings:
    name = detect(source).name
    language = LANGUAGES[name]
    data = source.head(MOST_BYTES).decode(source.encoding, "replace").encode("utf-8", "replace")
    root = _parsed(name, data).root_node
    outline = _Outline(data, language.importing)
    _walk(outline, {type_: taker for taker, types in language.nodes.items() for type_ in types.split()}, root)
    broken, waiting = [], [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            broken.append(node.start_point[0] + 1)
        else:
            waiting.extend(child for child in node.children if child.has_error or child.is_missing)
    broken.sort()
    found = outline.definitions
    types = sum(not one.is_function for one in found)
    named = {
        "Namespaces": outline.spaces,
        "Imports": outline.imports,
        "Exports": outline.exports,
        "Constants and variables": outline.values,
    }
    if broken and not found and not any(named.values()):
        raise Unreadable(
            fill(
                gettext_noop("not valid %(language)s in line %(line)s"),
                {"language": language.title, "line": broken[0]},
            )
        )

    lines = [
        f"{language.title}, {counted(text.count_lines(source), 'line')}: {counted(types, 'type')}, "
        f"{counted(outline.functions, 'function')}"
    ]
    if broken:
        places = listed((str(line) for line in dict.fromkeys(broken)), most=5)
        lines.append(f"Its syntax is broken in {counted(len(broken), 'place')}: line {places}")
    lines += [f"{word}: {listed(dict.fromkeys(names))}" for word, names in named.items() if names]
    lines += [str(one) for one in sorted(found, key=lambda one: one.name.startswith("_"))]
    if not found:
        lines += text.explore(source).lines[1:]
    return Findings(lines=lines, covered=source.covered_by(MOST_BYTES))


def _parsed(name: str, data: bytes) -> Tree:
    # What is far from the language may take its parser quadratic time, so it is stopped.
    parser = get_parser("bash" if name == "shell" else name)  # type: ignore[arg-type]
    began = time.process_time()
    try:
        return parser.parse(
            lambda at, _: data[at : at + PIECE_BYTES],
            progress_callback=lambda *_: time.process_time() - began > MOST_SECONDS,
        )
    except ValueError:
        raise Unreadable(
            fill(
                gettext_noop("it takes more than %(most)s seconds to parse as %(language)s"),
                {"most": str(MOST_SECONDS), "language": LANGUAGES[name].title},
            )
        ) from None


def _walk(outline: _Outline, takers: Mapping[str, Taker], root: Node) -> None:
    cursor, depth = root.walk(), 0  # A tree may be too deep for recursion.
    while True:
        while outline.holders and outline.holders[-1][0] >= depth:
            outline.holders.pop()
        node = cursor.node
        taker = takers.get(node.type) if node is not None and node.is_named else None
        if node is not None and (taker is None or taker(outline, node, depth)) and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1

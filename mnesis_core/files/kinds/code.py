"""Source in one of twelve languages: what it defines, imports and exports, each with its line."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from tree_sitter import Node, Tree
from tree_sitter_language_pack import get_parser

from mnesis_core.files.detection import detect
from mnesis_core.files.kinds import text
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown


class Part(Enum):
    """What a node of a syntax tree means for the outline."""

    # Has a line, with the names of what is defined in it: a class, a trait.
    HOLDER = auto()
    # A holder if it has a body; without one, only a mention of its name.
    BODIED = auto()
    # Is named, and what is defined in it has lines of its own: a package, a namespace.
    SPACE = auto()
    # Has a line that shows all of it: an enumeration, an alias.
    TYPE = auto()
    # Has a line, or a name in its holder's line; its content is not visited.
    FUNCTION = auto()
    # A function if it declares one, else a value.
    DECLARED = auto()
    # A function if a function is assigned, an export if the target is one, else a value.
    ASSIGNED = auto()
    # Is named: a constant, a variable of the whole file, a field, a macro.
    VALUE = auto()
    IMPORT = auto()
    # A call; an import if it calls one of the language's ``importing``.
    COMMAND = auto()
    EXPORT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    title: str
    grammar: str
    nodes: Mapping[str, Part]
    importing: frozenset[str] = frozenset()


_JAVASCRIPT = {
    "class_declaration": Part.HOLDER,
    "function_declaration": Part.FUNCTION,
    "generator_function_declaration": Part.FUNCTION,
    "method_definition": Part.FUNCTION,
    "field_definition": Part.ASSIGNED,
    "variable_declarator": Part.ASSIGNED,
    "assignment_expression": Part.ASSIGNED,
    "import_statement": Part.IMPORT,
    "call_expression": Part.COMMAND,
    "export_statement": Part.EXPORT,
}
_TYPESCRIPT = _JAVASCRIPT | {
    "abstract_class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "enum_declaration": Part.TYPE,
    "internal_module": Part.SPACE,
    "module": Part.SPACE,
    "function_signature": Part.FUNCTION,
    "method_signature": Part.FUNCTION,
    "abstract_method_signature": Part.FUNCTION,
    "public_field_definition": Part.ASSIGNED,
    "property_signature": Part.VALUE,
    "type_alias_declaration": Part.TYPE,
}
_RUST = {
    "struct_item": Part.TYPE,
    "enum_item": Part.TYPE,
    "union_item": Part.TYPE,
    "type_item": Part.TYPE,
    "trait_item": Part.HOLDER,
    "impl_item": Part.HOLDER,
    "mod_item": Part.SPACE,
    "function_item": Part.FUNCTION,
    "function_signature_item": Part.FUNCTION,
    "macro_definition": Part.FUNCTION,
    "const_item": Part.VALUE,
    "static_item": Part.VALUE,
    "use_declaration": Part.IMPORT,
    "extern_crate_declaration": Part.IMPORT,
}
_GO = {
    "package_clause": Part.SPACE,
    "type_spec": Part.TYPE,
    "type_alias": Part.TYPE,
    "function_declaration": Part.FUNCTION,
    "method_declaration": Part.FUNCTION,
    "const_spec": Part.VALUE,
    "var_spec": Part.VALUE,
    "import_spec": Part.IMPORT,
}
_JAVA = {
    "class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "enum_declaration": Part.HOLDER,
    "record_declaration": Part.HOLDER,
    "annotation_type_declaration": Part.HOLDER,
    "method_declaration": Part.FUNCTION,
    "constructor_declaration": Part.FUNCTION,
    "package_declaration": Part.SPACE,
    "import_declaration": Part.IMPORT,
}
_C = {
    "function_definition": Part.FUNCTION,
    "declaration": Part.DECLARED,
    "struct_specifier": Part.BODIED,
    "union_specifier": Part.BODIED,
    "enum_specifier": Part.BODIED,
    "field_declaration": Part.DECLARED,
    "type_definition": Part.TYPE,
    "preproc_def": Part.VALUE,
    "preproc_function_def": Part.VALUE,
    "preproc_include": Part.IMPORT,
}
_CPP = _C | {
    "class_specifier": Part.BODIED,
    "namespace_definition": Part.SPACE,
    "concept_definition": Part.TYPE,
    "alias_declaration": Part.TYPE,
    "using_declaration": Part.IMPORT,
}
_CSHARP = {
    "namespace_declaration": Part.SPACE,
    "file_scoped_namespace_declaration": Part.SPACE,
    "class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "struct_declaration": Part.HOLDER,
    "record_declaration": Part.HOLDER,
    "enum_declaration": Part.TYPE,
    "delegate_declaration": Part.TYPE,
    "method_declaration": Part.FUNCTION,
    "constructor_declaration": Part.FUNCTION,
    "local_function_statement": Part.FUNCTION,
    "property_declaration": Part.VALUE,
    "using_directive": Part.IMPORT,
}
_RUBY = {
    "class": Part.BODIED,
    "module": Part.BODIED,
    "method": Part.FUNCTION,
    "singleton_method": Part.FUNCTION,
    "call": Part.COMMAND,
}
_PHP = {
    "namespace_definition": Part.SPACE,
    "class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "trait_declaration": Part.HOLDER,
    "enum_declaration": Part.HOLDER,
    "function_definition": Part.FUNCTION,
    "method_declaration": Part.FUNCTION,
    "const_element": Part.VALUE,
    "namespace_use_declaration": Part.IMPORT,
    "require_expression": Part.IMPORT,
    "require_once_expression": Part.IMPORT,
    "include_expression": Part.IMPORT,
    "include_once_expression": Part.IMPORT,
}
_SHELL = {
    "function_definition": Part.FUNCTION,
    "variable_assignment": Part.VALUE,
    "command": Part.COMMAND,
}
LANGUAGES: dict[str, Language] = {
    "javascript": Language(
        title="JavaScript", grammar="javascript", nodes=_JAVASCRIPT, importing=frozenset(("require", "import"))
    ),
    "typescript": Language(
        title="TypeScript", grammar="typescript", nodes=_TYPESCRIPT, importing=frozenset(("require",))
    ),
    "tsx": Language(title="TypeScript with JSX", grammar="tsx", nodes=_TYPESCRIPT, importing=frozenset(("require",))),
    "rust": Language(title="Rust", grammar="rust", nodes=_RUST),
    "go": Language(title="Go", grammar="go", nodes=_GO),
    "java": Language(title="Java", grammar="java", nodes=_JAVA),
    "c": Language(title="C", grammar="c", nodes=_C),
    "cpp": Language(title="C++", grammar="cpp", nodes=_CPP),
    "csharp": Language(title="C#", grammar="csharp", nodes=_CSHARP),
    "ruby": Language(
        title="Ruby", grammar="ruby", nodes=_RUBY, importing=frozenset(("require", "require_relative", "load"))
    ),
    "php": Language(title="PHP", grammar="php", nodes=_PHP),
    "shell": Language(title="Shell", grammar="bash", nodes=_SHELL, importing=frozenset(("source", "."))),
}


# A syntax tree takes some thirty times as much memory as its source.
MOST_BYTES = 2_097_152
# Processor time for one tree; a whole file of real source takes three seconds.
MOST_SECONDS = 10
PIECE_BYTES = 65_536
HEADER_CHARACTERS = 160
# Bytes of a definition's source of which its header is made.
HEADER_BYTES = 2_000
MOST_MEMBERS = 12
# The deepest a variable of the whole file is in the tree: ``export const name = …``.
FILE_DEPTH = 3
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
    data: bytes
    language: Language
    definitions: list[_Definition] = field(default_factory=list)
    functions: int = 0
    spaces: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    # Each with its depth in the tree; the innermost last.
    holders: list[tuple[int, _Definition]] = field(default_factory=list)


def explore(source: Source) -> Findings:
    language = LANGUAGES[detect(source).name]
    data = source.head(MOST_BYTES).decode(source.encoding, "replace").encode("utf-8", "replace")
    tree = _parsed(language, data)
    outline = _Outline(data, language)
    _walk(outline, tree.root_node)
    covered = "all of it" if source.size <= MOST_BYTES else f"the first {MOST_BYTES:,} of {source.size:,} bytes"
    broken = _broken_lines(tree.root_node)
    found = outline.definitions
    types = sum(not one.is_function for one in found)
    named = {
        "Namespaces": outline.spaces,
        "Imports": outline.imports,
        "Exports": outline.exports,
        "Constants and variables": outline.values,
    }
    nothing = not found and not any(named.values())
    if nothing and broken:
        raise Unreadable(f"not valid {outline.language.title} in line {broken[0]:,}")
    lines = [
        f"{outline.language.title}, {counted(text.count_lines(source), 'line')}: {counted(types, 'type')}, "
        f"{counted(outline.functions, 'function')}"
    ]
    if broken:
        places = listed((str(line) for line in dict.fromkeys(broken)), most=5)
        lines.append(f"Its syntax is broken in {counted(len(broken), 'place')}: line {places}")
    lines += [f"{word}: {listed(dict.fromkeys(names))}" for word, names in named.items() if names]
    lines += [str(one) for one in sorted(found, key=lambda one: one.name.startswith("_"))]
    return Findings(lines=lines if found else [*lines, *text.explore(source).lines[1:]], covered=covered)


def _parsed(language: Language, data: bytes) -> Tree:
    # What is far from the language may take its parser quadratic time, so it is stopped.
    parser = get_parser(language.grammar)  # type: ignore[arg-type]
    began = time.process_time()
    try:
        return parser.parse(
            lambda at, _: data[at : at + PIECE_BYTES],
            progress_callback=lambda *_: time.process_time() - began > MOST_SECONDS,
        )
    except ValueError:
        raise Unreadable(f"it takes more than {MOST_SECONDS} seconds to parse as {language.title}") from None


def _broken_lines(root: Node) -> list[int]:
    broken, waiting = [], [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            broken.append(node.start_point[0] + 1)
        else:
            waiting.extend(child for child in node.children if child.has_error or child.is_missing)
    return sorted(broken)


def _walk(outline: _Outline, root: Node) -> None:
    # A tree may be too deep for recursion.
    cursor, depth = root.walk(), 0
    while True:
        while outline.holders and outline.holders[-1][0] >= depth:
            outline.holders.pop()
        node = cursor.node
        if node is not None and _take(outline, node, depth) and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def _take(outline: _Outline, node: Node, depth: int) -> bool:
    """Note what a node is. Return whether its children are to be visited."""
    part = outline.language.nodes.get(node.type) if node.is_named else None
    return True if part is None else _TAKERS[part](outline, node, depth)


def _take_holder(outline: _Outline, node: Node, depth: int) -> bool:
    outline.holders.append((depth, _define(outline, node, _header(outline, node, node))))
    return True


def _take_bodied(outline: _Outline, node: Node, depth: int) -> bool:
    return node.child_by_field_name("body") is None or _take_holder(outline, node, depth)


def _take_space(outline: _Outline, node: Node, _depth: int) -> bool:
    outline.spaces.append(_name(outline, node) or _without_keyword(outline, node))
    return True


def _take_type(outline: _Outline, node: Node, _depth: int) -> bool:
    header = shown(_decoded(outline, node.start_byte, node.end_byte), characters=HEADER_CHARACTERS)
    name = _name(outline, node)
    _define(outline, node, header if name in header else f"{header} {name}")
    return False


def _take_function(outline: _Outline, node: Node, _depth: int) -> bool:
    _define_function(outline, node, node)
    return False


def _take_value(outline: _Outline, node: Node, _depth: int) -> bool:
    _value(outline, _name(outline, node))
    return True


def _take_import(outline: _Outline, node: Node, _depth: int) -> bool:
    found = next((found for name in _IMPORTING_FIELDS if (found := node.child_by_field_name(name))), None)
    outline.imports.append(_without_keyword(outline, node) if found is None else _text(outline, found).strip("\"'<>"))
    return False


def _take_declared(outline: _Outline, node: Node, depth: int) -> bool:
    if (function := _function_of(node, None)) is not None:
        _define_function(outline, node, function)
    elif depth <= FILE_DEPTH or outline.holders:
        _value(outline, _name(outline, node))
    return False


def _take_assigned(outline: _Outline, node: Node, depth: int) -> bool:
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if (function := _function_of(node, value)) is not None:
        _define_function(outline, node, function)
        return False
    name = _name(outline, node)
    if node.type == "assignment_expression":
        if (match := _EXPORTED.match(name)) and value is not None:
            outline.exports.append(name[match.end() :] or _text(outline, value))
    elif (depth <= FILE_DEPTH or outline.holders) and "require(" not in _text(outline, value):
        _value(outline, name)
    return True


def _define(outline: _Outline, node: Node, header: str, *, is_function: bool = False) -> _Definition:
    line = node.start_point[0] + 1
    definition = _Definition(line, header, _name(outline, node), is_function)
    outline.definitions.append(definition)
    return definition


def _define_function(outline: _Outline, node: Node, function: Node) -> None:
    outline.functions += 1
    if outline.holders:
        outline.holders[-1][1].members.append(_name(outline, node))
        return
    _define(outline, node, _header(outline, node, function), is_function=True)


def _function_of(node: Node, value: Node | None) -> Node | None:
    if value is not None and value.type in _FUNCTIONS:
        return value
    inner = node.child_by_field_name("declarator")
    while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
        inner = inner.child_by_field_name("declarator") or next(iter(inner.named_children), None)
    return node if inner is not None and inner.type == "function_declarator" else None


def _value(outline: _Outline, name: str) -> None:
    names = outline.holders[-1][1].members if outline.holders else outline.values
    names.append(name)


def _take_command(outline: _Outline, node: Node, _depth: int) -> bool:
    called = next((found for name in ("function", "method", "name") if (found := node.child_by_field_name(name))), None)
    if _text(outline, called) not in outline.language.importing:
        return True
    outline.imports.append(_without_keyword(outline, node))
    return False


def _take_export(outline: _Outline, node: Node, _depth: int) -> bool:
    declared = node.child_by_field_name("declaration")
    if declared is None:
        outline.exports.append(_without_keyword(outline, node))
        return True
    within = [declared] if declared.child_by_field_name("name") else declared.named_children
    names = [name for one in within if (name := _name(outline, one))]
    outline.exports.extend(names or ["default"])
    return True


def _name(outline: _Outline, node: Node) -> str:
    found: Node | None = node
    while found is not None and (inner := found.child_by_field_name("declarator")) is not None:
        found = inner
    if found is node:
        found = next((found for name in _NAMING_FIELDS if (found := node.child_by_field_name(name))), None)
        found = found or next(
            (child for child in node.named_children if "identifier" in child.type or child.type == "name"), None
        )
    return _text(outline, found)


def _without_keyword(outline: _Outline, node: Node) -> str:
    """Return what follows the first word: ``import``, ``package``."""
    return re.sub(r"^[#\s]*[\w.]+", "", _text(outline, node), count=1).replace('"', "").strip(" '<>();")


def _header(outline: _Outline, node: Node, function: Node) -> str:
    """Return a definition up to its body."""
    body = function.child_by_field_name("body")
    end = node.end_byte if body is None else body.start_byte
    text_before = _decoded(outline, node.start_byte, end)
    return shown(text_before.rstrip(" \n\t;{"), characters=HEADER_CHARACTERS)


def _text(outline: _Outline, node: Node | None) -> str:
    return "" if node is None else shown(_decoded(outline, node.start_byte, node.end_byte))


def _decoded(outline: _Outline, start: int, end: int) -> str:
    # Lines that are only comments or attributes are left out.
    return _COMMENT_LINES.sub("", outline.data[start : min(end, start + HEADER_BYTES)].decode("utf-8", "ignore"))


_TAKERS = {
    Part.HOLDER: _take_holder,
    Part.BODIED: _take_bodied,
    Part.SPACE: _take_space,
    Part.TYPE: _take_type,
    Part.FUNCTION: _take_function,
    Part.DECLARED: _take_declared,
    Part.ASSIGNED: _take_assigned,
    Part.VALUE: _take_value,
    Part.IMPORT: _take_import,
    Part.COMMAND: _take_command,
    Part.EXPORT: _take_export,
}

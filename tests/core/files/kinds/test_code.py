"""Source in twelve languages: what it defines, imports and exports."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mnesis_core.files.kinds import code
from mnesis_core.files.kinds.code import LANGUAGES, MOST_BYTES, explore
from mnesis_core.files.source import SUMMARY_CHARACTERS, Unreadable
from tests.core.files.conftest import MakeSource

SAMPLES = {
    "a.js": (
        """import q, {r} from "y"
export default class Foo extends Bar { #a = 1; b = () => 2; static async c(x) {} }
export const d = async (a) => 3; export { d as e }
module.exports.f = function () {}; const g = require("x"); const LIMIT = 3
(function () { var local = 1; function* gen(a, b = {c: 1}) {} })()
""",
        [
            "JavaScript, 5 lines: 1 type, 5 functions",
            "Imports: y, x",
            "Exports: Foo, d, { d as e }",
            "Constants and variables: LIMIT",
            "2: class Foo extends Bar: #a, b, c",
            "3: d = async (a) =>",
            "4: module.exports.f = function ()",
            "5: function* gen(a, b = {c: 1})",
        ],
    ),
    "a.ts": (
        """import type {A} from "./a"
export interface I<T> extends J { a: string; b(): void }
declare module "m" { function x(): void }
@Component({})
abstract class K { abstract z(): void; q = async () => {} }
export enum E { A, B }
""",
        [
            "TypeScript, 6 lines: 3 types, 4 functions",
            'Namespaces: "m"',
            "Imports: ./a",
            "Exports: I, E",
            "2: interface I<T> extends J: a, b",
            "3: function x(): void",
            "4: abstract class K: z, q",
            "6: enum E { A, B }",
        ],
    ),
    "a.tsx": (
        "export const C = ({a}: P): JSX.Element => <div a={a}/>\n",
        [
            "TypeScript with JSX, 1 line: 0 types, 1 function",
            "Exports: C",
            "1: C = ({a}: P): JSX.Element =>",
        ],
    ),
    "a.rs": (
        """use std::{io, fs}; mod t; const C: u8 = 1;
/// Words.
#[derive(Debug)]
pub struct S<T> {
    /// The a.
    a: T,
}
pub trait R: Send { fn x(&self); }
impl<T> R for S<T> { fn x(&self) { } }
pub async fn main() -> Result<(), E> where T: X { fn inner() {} }
""",
        [
            "Rust, 10 lines: 3 types, 3 functions",
            "Namespaces: t",
            "Imports: std::{io, fs}",
            "Constants and variables: C",
            "4: pub struct S<T> { a: T, }",
            "8: pub trait R: Send: x",
            "9: impl<T> R for S<T>: x",
            "10: pub async fn main() -> Result<(), E> where T: X",
        ],
    ),
    "a.go": (
        """package main
import ("fmt"; x "y/z")
type A struct { B int }
type I interface { M() }
func (a *A) F(x int) (int, error) { return }
const C = 1
""",
        [
            "Go, 6 lines: 2 types, 1 function",
            "Namespaces: main",
            "Imports: fmt, y/z",
            "Constants and variables: C",
            "3: A struct { B int }",
            "4: I interface { M() }",
            "5: func (a *A) F(x int) (int, error)",
        ],
    ),
    "a.java": (
        """package a.b; import java.util.*;
@Service
public final class A<T> extends B { A() {} <X> List<X> m(int a) { return null; } interface I { void n(); } }
""",
        [
            "Java, 3 lines: 2 types, 3 functions",
            "Namespaces: a.b",
            "Imports: java.util.*",
            "2: public final class A<T> extends B: A, m",
            "3: interface I: n",
        ],
    ),
    "a.c": (
        """#include <a.h>
#define LIMIT 1
struct A { int x; }; struct A *known; typedef struct { int y; } B;
static int *f(int a) { int local; return 0; }
int g(void);
""",
        [
            "C, 5 lines: 2 types, 2 functions",
            "Imports: a.h",
            "Constants and variables: LIMIT, known",
            "3: struct A: x",
            "3: typedef struct { int y; } B;",
            "4: static int *f(int a)",
            "5: int g(void)",
        ],
    ),
    "a.cpp": (
        """using std::string;
template<class T> class C : public D { void m(); T n() { } int v; };
int C::k() {}
namespace a::b { int z(); }
""",
        [
            "C++, 4 lines: 1 type, 4 functions",
            "Namespaces: a::b",
            "Imports: std::string",
            "2: class C : public D: m, n, v",
            "3: int C::k()",
            "4: int z()",
        ],
    ),
    "a.cs": (
        """using System.Text;
namespace A.B { [Flags]
public class C : D { public int P {get;set;} public C() {} async Task<int> M(int a) => 1; } enum E {F} }
""",
        [
            "C#, 3 lines: 2 types, 2 functions",
            "Namespaces: A.B",
            "Imports: System.Text",
            "2: public class C : D: P, C, M",
            "3: enum E {F}",
        ],
    ),
    "a.rb": (
        'require "a"\nmodule Z\n class A < B\n  def m(a) = 1\n  def self.n; end\n end\nend\n',
        ["Ruby, 7 lines: 2 types, 2 functions", "Imports: a", "2: module Z", "3: class A < B: m, n"],
    ),
    "a.php": (
        r"""<?php namespace A\B; use C\D; const E = 1; require_once("f");
abstract class G extends H { const J = 2; public function k(int $a): int {} }
function l() {}
""",
        [
            "PHP, 3 lines: 1 type, 2 functions",
            r"Namespaces: A\B",
            r"Imports: C\D, f",
            "Constants and variables: E",
            "2: abstract class G extends H: J, k",
            "3: function l()",
        ],
    ),
    "a.sh": (
        ". /etc/x\nsource y\nA=1\n_own() { :; }\nfunction g { B=2; }\n",
        [
            "Shell, 5 lines: 0 types, 2 functions",
            "Imports: /etc/x, y",
            "Constants and variables: A",
            "5: function g",
            "4: _own()",
        ],
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_language_is_told_in_the_order_of_its_lines(source: MakeSource, name: str) -> None:
    written, told = SAMPLES[name]
    assert list(explore(source(name, written.encode())).lines) == told


def test_every_language_has_a_sample() -> None:
    assert len(SAMPLES) == len(LANGUAGES)


def test_broken_source_says_where_and_still_what_was_found(source: MakeSource) -> None:
    lines = explore(source("a.rs", b"fn first() {}\n\nstruct A { x y z }\n\nfn last() {}\n")).lines
    assert lines[1].startswith("Its syntax is broken in 1 place: line 3")
    assert lines[-2:] == ["3: struct A { x y z }", "5: fn last()"]


def test_a_program_without_definitions_shows_how_it_begins(source: MakeSource) -> None:
    lines = explore(source("a.sh", b"#!/bin/sh\necho yes\n")).lines
    assert list(lines[1:]) == ["It begins:", "#!/bin/sh", "echo yes"]


def test_invalid_utf_8_is_only_a_wrong_character(source: MakeSource) -> None:
    assert explore(source("a.js", b"function \xff() {}\nfunction b() {}")).lines[-1] == "2: function b()"


@pytest.mark.parametrize("kind", LANGUAGES)
def test_hostile_source_is_told_in_a_few_lines_or_refused(source: MakeSource, kind: str) -> None:
    name = next(name for name in SAMPLES if LANGUAGES[kind].title in SAMPLES[name][1][0])
    for data in (b"", b"(" * 20_000, b"{" * 20_000, b"a=" * 20_000, b"int *" * 5_000 + b"x;"):
        with suppress(Unreadable):
            assert all(len(line) < SUMMARY_CHARACTERS for line in explore(source(name, data)).lines)


def test_what_is_nothing_of_its_language_is_refused(source: MakeSource) -> None:
    with pytest.raises(Unreadable, match="not valid Rust in line 1"):
        explore(source("a.rs", b"Dear all,\nthis is a letter (and no program.\n"))


def test_more_than_is_read_is_said(source: MakeSource) -> None:
    findings = explore(source("a.c", b"int f(void);\n" + b" " * MOST_BYTES))
    assert findings.covered == "the first 2,097,152 of 2,097,165 bytes"
    assert findings.lines[-1] == "1: int f(void)"


def test_source_that_takes_its_parser_too_long_is_refused(source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MOST_SECONDS", 0)
    with pytest.raises(Unreadable, match="takes more than 0 seconds to parse as Rust"):
        explore(source("a.rs", b"a, " * 20_000))

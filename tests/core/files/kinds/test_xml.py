"""What is said of XML."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import markup
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_elements_are_told_by_path(source: MakeSource) -> None:
    data = b'<feed xmlns="urn:f"><item id="1"><name>one</name></item><item id="2"><name>two</name></item></feed>'
    assert markup.explore_xml(source("a.xml", data)).lines == [
        "5 elements, 3 deep; the root is feed",
        "Namespaces: urn:f",
        'item ×2 (id="1")',
        "item/name ×2: one",
    ]


def test_a_document_type_elsewhere_is_not_fetched(source: MakeSource) -> None:
    data = b'<!DOCTYPE a SYSTEM "file:///etc/hostname"><a>text</a>'
    assert markup.explore_xml(source("a.xml", data)).lines == ["1 element, 1 deep; the root is a: text"]


@pytest.mark.parametrize(
    "entity",
    [b'<!ENTITY b "&c;&c;"><!ENTITY c "dd">', b'<!ENTITY b SYSTEM "file:///etc/passwd">', b'<!ENTITY % b "x">'],
)
def test_entities_are_refused(source: MakeSource, entity: bytes) -> None:
    with pytest.raises(Unreadable, match="declares entities"):
        markup.explore_xml(source("a.xml", b"<!DOCTYPE a [" + entity + b"]><a>&b;</a>"))


def test_deep_nesting_is_counted(source: MakeSource) -> None:
    found = markup.explore_xml(source("a.xml", b"<a>" * 200_000 + b"</a>" * 200_000))
    assert found.lines[0] == "200,000 elements, 200,000 deep; the root is a"


def test_many_names_are_cut(source: MakeSource) -> None:
    found = markup.explore_xml(source("a.xml", b"<r>" + b"".join(b"<n%d/>" % n for n in range(3_000)) + b"</r>"))
    assert found.lines[-1] == "1,959 more paths, and others"


def test_what_is_before_an_error_is_told(source: MakeSource) -> None:
    found = markup.explore_xml(source("a.xml", b"<r>" + b"<i/>" * 200 + b"</x>"))
    assert found.lines[0] == "Not valid XML after 201 elements: line 1: mismatched tag"


@pytest.mark.parametrize("data", [b"", b"hello", b"<a><b></a>", b"\x00" * 10])
def test_what_is_no_xml_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="not valid XML"):
        markup.explore_xml(source("a.xml", data))

"""What is said of YAML."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import yaml
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_keys_have_types_and_values(source: MakeSource) -> None:
    found = yaml.explore(source("a.yaml", b'name: x\nport: 80\non: true\nquoted: "1"\nnone:\nlist: [a, b]\n'))
    assert found.lines == [
        'object of 6 keys: name "x", port 80, on true, quoted "1", none null, list (array of 2 strings: a, b)'
    ]


def test_documents_are_counted_and_named(source: MakeSource) -> None:
    data = b"kind: Service\nmetadata:\n  name: web\n---\nkind: Secret\nmetadata:\n  name: key\n"
    assert yaml.explore(source("a.yaml", data)).lines[0] == "2 documents: Service web, Secret key"


def test_aliases_are_counted_and_never_followed(source: MakeSource) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert yaml.explore(source("a.yaml", bomb.encode())).lines[-1] == "118 aliases, not followed"


def test_an_alias_is_a_value_of_its_own(source: MakeSource) -> None:
    assert yaml.explore(source("a.yaml", b"a: &x 1\nb: *x\nc: 2\n")).lines[0] == "object of 3 keys: a 1, b *x, c 2"


def test_tags_are_named_and_nothing_is_constructed(source: MakeSource) -> None:
    found = yaml.explore(source("a.yaml", b"a: !!python/object/apply:os.abort []\nb: !Ref x\n"))
    assert found.lines[-1] == "Tags: tag:yaml.org,2002:python/object/apply:os.abort ×1, !Ref ×1"


def test_a_mapping_as_key_does_not_shift_the_others(source: MakeSource) -> None:
    assert yaml.explore(source("a.yaml", b"{a: 1}: x\nb: 2\n")).lines == ['object of 2 keys: ? "x", b 2']


def test_more_than_is_looked_at_says_so(source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "MOST_EVENTS", 100)
    assert yaml.explore(source("a.yaml", b"- a\n" * 200)).covered == "the first 100 keys and values"


@pytest.mark.parametrize(
    "data", [b"", b"a: [", b"a: b: c", b"only words", b"a: \x00", b"[" * 200_000, b"{a: " * 200_000]
)
def test_what_is_no_yaml_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable):
        yaml.explore(source("a.yaml", data))

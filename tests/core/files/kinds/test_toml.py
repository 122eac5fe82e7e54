"""What is said of TOML."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import yaml
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def test_sections_and_keys_are_named(source: MakeSource) -> None:
    found = yaml.explore_toml(source("a.toml", b'name = "a"\n[tool]\nx = 1\n[tool.deep]\ny = 2\n'))
    assert found.lines == ("1 section: tool", "1 top-level key: name")


def test_what_is_no_toml_is_unreadable(source: MakeSource) -> None:
    with pytest.raises(Unreadable, match="not valid TOML"):
        yaml.explore_toml(source("a.toml", b"no = = toml"))

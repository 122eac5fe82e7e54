"""Files to explore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mnesis_core.files.source import Source

MakeSource = Callable[[str, bytes], Source]


@pytest.fixture
def source(tmp_path: Path) -> MakeSource:
    """Makes a file with these bytes, of which its owner says that it has this name."""

    def make(name: str, data: bytes) -> Source:
        path = tmp_path / f"content-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(data)
        return Source(path=path, name=name, size=len(data))

    return make

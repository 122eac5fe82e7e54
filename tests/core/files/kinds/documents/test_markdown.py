"""What is said of Markdown."""

from __future__ import annotations

import pytest

from mnesis_core.files.kinds import markup
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource

DOCUMENT = b"""---
title: A guide
tags: [a]
---
# First
Some [link](http://x) and ![picture](y.png).

~~~python
# no heading
~~~

Second
------

```
## no heading either
```
### Third ###
"""


def test_outline_code_links_and_front_matter_are_told(source: MakeSource) -> None:
    assert markup.explore_markdown(source("a.md", DOCUMENT)).lines == [
        "11 words, 3 headings, 1 link, 1 image, 2 blocks of code",
        "Front matter: title: A guide, tags: [a]",
        "Code: python ×1",
        "Begins: Some [link](http://x) and ![picture](y.png). Second",
        "# First",
        "## Second",
        "### Third",
    ]


def test_more_headings_than_are_told_are_counted(source: MakeSource) -> None:
    found = markup.explore_markdown(source("a.md", b"# A\n" * 100))
    assert found.lines[-1] == "40 more headings"


def test_an_open_block_is_reported(source: MakeSource) -> None:
    assert "A block of code is not closed" in markup.explore_markdown(source("a.md", b"a\n```\n# b\n")).lines


def test_an_empty_file_is_unreadable(source: MakeSource) -> None:
    with pytest.raises(Unreadable, match="empty"):
        markup.explore_markdown(source("a.md", b""))

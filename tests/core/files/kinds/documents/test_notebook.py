"""What is said of notebooks."""

from __future__ import annotations

import json

import pytest

from mnesis_core.files.kinds.json import explore_notebook
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource

NOTEBOOK = {
    "metadata": {"kernelspec": {"display_name": "Python 3"}, "language_info": {"name": "python", "version": "3.11"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "text\n", "## Part"]},
        {
            "cell_type": "code",
            "source": "import numpy as np\nfrom a.b import c\ndef f(x):\n    pass\nclass K: pass",
            "outputs": [
                {"output_type": "error", "ename": "ValueError", "evalue": "bad"},
                {"output_type": "display_data", "data": {"image/png": "x"}},
            ],
        },
    ],
}


def test_cells_outline_code_and_errors_are_told(source: MakeSource) -> None:
    assert explore_notebook(source("a.ipynb", json.dumps(NOTEBOOK).encode())).lines == [
        "python 3.11 (kernel Python 3); 2 cells: 1 markdown, 1 code",
        "Imports numpy, a.b",
        "Defines f, K",
        "2 outputs: error ×1, image/png ×1",
        "Error ValueError: bad",
        "# Title",
        "## Part",
    ]


@pytest.mark.parametrize(
    "cells",
    [
        [{"cell_type": ["x"], "source": 1, "outputs": 2}],
        [{"cell_type": "code", "source": [1, None], "outputs": [{"output_type": [1], "data": 3}]}],
        [1, None, "x"],
    ],
)
def test_cells_of_strange_types_are_no_problem(source: MakeSource, cells: list[object]) -> None:
    data = json.dumps({"cells": cells, "metadata": {"kernelspec": 1, "language_info": {"name": [], "version": {}}}})
    assert "cell" in explore_notebook(source("a.ipynb", data.encode())).lines[0]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"cells": {}}', b'{"cells":' + b"[" * 200_000])
def test_what_is_no_notebook_is_unreadable(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match="not a notebook"):
        explore_notebook(source("a.ipynb", data))

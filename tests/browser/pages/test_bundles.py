"""The script that has all modules in it: each runs when it is first asked for, once, in the order in which pages name them."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from sessions_app.pages.bundles import bundle_scripts
from tests.browser.conftest import Portal

SCRIPTS = Path(__file__).resolve().parents[3] / "static" / "js"

NOTE = 'export const note = (word) => (document.body.dataset.ran = `${document.body.dataset.ran ?? ""} ${word}`);\n'
MODULES = {
    "site.js": (SCRIPTS / "site.js").read_text(),
    "support/note.js": NOTE,
    "support/shared.js": 'import { note } from "./note.js";\n\nnote("shared");\nexport const load = "of its own";\n',
    "pages/late.js": 'import { load as name } from "../support/shared.js";\n\nexport const word = `late ${name}`;\n',
    "shell/page.js": 'import { note } from "../support/note.js";\nimport "../support/shared.js";\n\nnote("page");\n',
    "shell/sidebar.js": 'import "../support/shared.js";\n\nthrow new Error("broken on purpose");\n',
    "pages/trash.js": 'import { note } from "../support/note.js";\nimport { load } from "../support/shared.js";\n\nnote(load);\n'
    'import("./late.js").then(({ word }) => note(word));\nnote("trash");\n',
}


def test_modules_of_the_bundle_run_once_and_in_order_though_one_fails(portal: Portal, tmp_path: Path) -> None:
    for name, source in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    window = portal.context()  # not of open_page, which takes no error
    page = window.new_page()
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(error.message))
    page.route("**/site.js", lambda route: route.fulfill(body=bundle_scripts(tmp_path), content_type="text/javascript"))
    page.goto(f"{portal.site.url}/trash/")
    expect(page.locator("body")).to_have_attribute("data-ran", " shared page of its own trash late of its own")
    window.close()
    assert failed == ["broken on purpose"]

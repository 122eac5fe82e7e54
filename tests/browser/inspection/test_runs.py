"""The pages of runs in a browser: watched while they go on, steered by keyboard, read item by item, on small screens too."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
SCHEMA = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \u202egpj.exe " + "w" * 300
LOOKS = ((390, "light"), (390, "dark"), (1440, "light"), (1440, "dark"))


def start(portal: Portal, items: list[Any], **values: Any) -> str:
    """Begin a run over these items; returns its id."""
    body = {"template": "{{ item }}", "output_schema": SCHEMA, "items": items, "model": "demo"} | values
    return str(portal.call("POST", "/api/operators/llm-map", body)["id"])


def wait_until_over(portal: Portal, run_id: str) -> None:
    wait_until(lambda: portal.call("GET", f"/api/operators/{run_id}")["state"] == "completed")


@pytest.fixture(scope="module")
def mixed(portal: Portal) -> str:
    """A run that is over: 120 items, every tenth of which failed, some with hostile texts."""
    items = [f"!fail 401 {HOSTILE}" if number % 10 == 0 else f"{HOSTILE} {number}" for number in range(1, 121)]
    run_id = start(portal, items, system_prompt=HOSTILE, max_retries=0)
    wait_until_over(portal, run_id)
    return run_id


def state_of(page: Page) -> Any:
    return page.locator("#run-progress .badge").first


def has_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def test_a_run_is_started_from_a_table_once_its_prompt_fits(portal: Portal, open_page: Open) -> None:
    page = open_page("/runs/")
    page.get_by_role("link", name="New run").click()
    table = {"name": "reviews.csv", "mimeType": "text/csv", "buffer": b"text;stars\nLovely.;5\nCold.;1\n"}
    page.get_by_label("File with the items").set_input_files(table)
    expect(page.get_by_label("Sub-agents may use tools that change something")).to_be_hidden()
    page.get_by_label("A sub-agent with tools, for each item").check()
    expect(page.get_by_label("Sub-agents may use tools that change something")).to_be_visible()
    page.get_by_label("A model, with one call for each item").check()
    page.get_by_label("Prompt for each item").fill("Is it kind? {{ item.txt }}")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("The template cannot be rendered for this item")).to_be_visible()
    expect(page.get_by_role("link", name="reviews.jsonl")).to_be_visible()
    page.get_by_label("Prompt for each item").fill("Is it kind? {{ item.text }}")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="LLM map over reviews.jsonl")).to_be_visible()
    expect(state_of(page)).to_have_text("completed")
    expect(page.locator(".items")).to_contain_text("Is it kind? Lovely.")
    sessions = portal.call("GET", "/api/sessions?limit=100")["items"]
    assert [session["title"] for session in sessions].count("reviews.jsonl") == 1


def test_a_run_is_watched_paused_resumed_and_cancelled_by_keyboard(portal: Portal, open_page: Open) -> None:
    run_id = start(portal, [f"!slow 400 tide {number}" for number in range(600)])
    page = open_page(f"/runs/{run_id}/")
    expect(state_of(page)).to_have_text("running")
    expect(page.locator(".run-percent")).not_to_contain_text("0 of 600")
    jump = page.get_by_label("From item")
    jump.fill("5")
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(state_of(page)).to_have_text("paused")
    expect(page.locator("#run-announcer")).to_have_text("The run is paused.")
    expect(jump).to_have_value("5")
    page.get_by_role("button", name="Resume").focus()
    page.keyboard.press("Enter")
    expect(state_of(page)).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    expect(state_of(page)).to_have_text("cancelled")
    expect(page.locator("#items-cancelled")).not_to_contain_text(" 0")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


def test_what_the_api_refuses_is_said(portal: Portal, open_page: Open) -> None:
    run_id = start(portal, [f"!slow 400 tide {number}" for number in range(200)])
    page = open_page(f"/runs/{run_id}/")
    pause = page.get_by_role("button", name="Pause")
    expect(pause).to_be_visible()
    page.route(
        re.compile(r"/progress/$"), lambda route: route.fulfill(status=204)
    )  # as a tab that has not heard of it yet
    portal.call("POST", f"/api/operators/{run_id}/cancel")
    pause.click()
    expect(page.locator("#run-error")).to_contain_text("OPERATOR_RUN_NOT_IN_STATE")
    page.unroute_all()


def test_failed_items_are_found_read_and_tried_again(portal: Portal, mixed: str, open_page: Open) -> None:
    page = open_page(f"/runs/{mixed}/")
    expect(page.locator(".items tbody tr")).to_have_count(50)
    page.locator("#items-failed").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".items tbody tr")).to_have_count(12)
    expect(page.locator("#items-failed")).to_be_focused()
    assert page.url.endswith("?state=failed")
    page.reload()
    expect(page.locator(".items tbody tr")).to_have_count(12)
    page.locator("#item-10").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Item 10", exact=True)).to_be_visible()
    expect(page.locator(".try")).to_have_count(1)
    expect(page.locator(".try")).to_contain_text("LLM error")
    page.get_by_text("What was sent to the model").click()
    expect(page.locator(".try-prompt")).to_contain_text("<script>alert(1)</script>")
    page.get_by_role("link", name="Next item").click()
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    page.goto(f"/runs/{mixed}/")
    page.get_by_role("button", name="Retry 12 failed").click()
    expect(page.locator("#run-progress")).to_contain_text("132")  # tries
    wait_until_over(portal, mixed)
    expect(state_of(page)).to_have_text("completed")


def test_a_refresh_never_undoes_which_items_were_asked_for(mixed: str, open_page: Open) -> None:
    page = open_page(f"/runs/{mixed}/")
    held: list[Route] = []
    page.route("**/items/?*from=111*", lambda route: held.append(route))
    page.get_by_label("From item").fill("111")
    page.keyboard.press("Enter")
    expect(page.locator("#item-jump")).to_have_class(re.compile("htmx-request"))
    page.evaluate("htmx.trigger('#run-items', 'mnesis:run')")
    page.wait_for_timeout(1_000)  # in which a refresh would be answered and drawn
    held[0].continue_()
    expect(page.locator(".items tbody tr")).to_have_count(10)


def test_items_are_paged_and_any_of_many_is_two_steps_away(portal: Portal, open_page: Open) -> None:
    run_id = start(portal, [f"tide {number}" for number in range(1, 1_201)])
    page = open_page(f"/runs/{run_id}/")
    expect(page.locator("#items-all")).to_contain_text("1,200")
    expect(page.locator(".items tbody tr")).to_have_count(50)
    page.get_by_label("From item").focus()  # the press takes the focus away, which does not end it
    page.get_by_role("link", name="Later items").hover()
    page.mouse.down()
    page.wait_for_timeout(3_500)  # a refresh comes in between: what is pressed stays where it is
    page.mouse.up()
    expect(page.locator("#item-51")).to_be_visible()
    page.get_by_role("link", name="Earlier items").click()
    expect(page.locator("#item-1")).to_be_visible()
    page.get_by_label("From item").fill("1190")
    page.keyboard.press("Enter")
    expect(page.locator(".items tbody tr")).to_have_count(11)
    expect(page.locator("#item-1200")).to_contain_text("1,200")
    wait_until_over(portal, run_id)
    expect(page.locator(".items .item-completed")).to_have_count(11)
    expect(page.locator(".chart")).to_have_count(2)
    page.get_by_text("Show as a table").click()
    expect(page.get_by_role("row").filter(has_text="/ s").first).to_be_visible()


def test_results_are_downloaded_as_lines_and_as_a_table(mixed: str, open_page: Open) -> None:
    page = open_page(f"/runs/{mixed}/")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Results as JSON Lines").click()
    lines = [json.loads(line) for line in Path(waiting.value.path()).read_text().splitlines()]
    assert [line["item"] for line in lines] == list(range(1, 121))
    with page.expect_download() as waiting:
        page.get_by_role("link", name="As CSV").click()
    with Path(waiting.value.path()).open(newline="") as file:
        assert len(list(csv.reader(file))) == 121


def test_the_card_of_the_tool_leads_to_the_run_and_the_run_to_its_session(portal: Portal, open_page: Open) -> None:
    config = {"turn": {"tools": ["llm_map"]}}
    session_id = portal.call("POST", "/api/sessions", {"model": "demo", "title": "Tides", "config": config})["id"]
    page = open_page(f"/sessions/{session_id}/", viewport={"width": 390, "height": 740})
    arguments = {"prompt_template": "{{ item }}", "output_schema": SCHEMA, "items": ["low", "high"]}
    page.get_by_label("Message", exact=True).fill(f"!tool llm_map {json.dumps(arguments)}")
    page.keyboard.press("Enter")
    card = page.locator(".launched")
    expect(card).to_contain_text("2 of 2")
    assert not has_sideways_scroll(page)
    # The drawing of an answer that has ended, with its tokens, takes the focus away.
    expect(page.locator(".message-assistant").last).to_contain_text("· provider")
    card.get_by_role("link").press("Enter")
    expect(page.locator(".run-percent")).to_contain_text("2 of 2 items")
    page.get_by_role("link", name="Tides").click()
    page.get_by_label("More about this session").click()
    page.get_by_role("link", name="Runs of this session").click()
    expect(page.locator(".session-row")).to_have_count(1)


def test_an_item_of_an_agentic_map_leads_to_its_session(portal: Portal, open_page: Open) -> None:
    body = {"template": "What is {{ item }}?", "items": ["6 * 7"], "model": "demo", "output_schema": SCHEMA}
    run_id = portal.call("POST", "/api/operators/agentic-map", body | {"max_retries": 0})["id"]
    wait_until_over(portal, run_id)
    page = open_page(f"/runs/{run_id}/items/1/")
    page.get_by_role("link", name="Sub-agent session").first.click()
    expect(page.locator(".message-user")).to_contain_text("6 * 7")
    expect(page.locator(".origin").first).to_be_visible()


def test_no_page_about_runs_runs_over_the_edge(mixed: str, open_page: Open) -> None:
    page = open_page("/runs/")
    for path in ("/runs/", f"/runs/{mixed}/", f"/runs/{mixed}/items/10/", f"/runs/{mixed}/items/11/"):
        page.goto(path)
        page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true })")
        for width, scheme in LOOKS:
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            assert not has_sideways_scroll(page), (path, width, scheme)


def test_without_scripts_everything_can_be_read(mixed: str, open_page: Open) -> None:
    page = open_page(f"/runs/{mixed}/", java_script_enabled=False)
    page.locator("#items-failed").click()
    expect(page.locator(".items tbody tr .item-failed").first).to_be_visible()
    page.get_by_label("From item").fill("70")
    page.get_by_role("button", name="Go", exact=True).click()
    assert "state=failed" in page.url
    assert "from=70" in page.url
    expect(page.locator("#item-70")).to_be_visible()

"""Uses a page of an image with copies of basic blocks in headless Chromium; status 1 with the reason when it does not work.

Usage: fragments.py PAGE COPIES SCREENSHOTS, where COPIES is the part `copies` of the summary. Of the program's functions, `step_3`
runs whole and has a copy, `step_110` does not run, and of `odd_0` one instruction runs.
"""

import json
import pathlib
import re
import sys

from browser import Session, check_barriers, column, expect, number, sorted_out
from playwright.sync_api import sync_playwright


def pages_of(session, map_id):
    """How many pages a map shows."""
    return number(session.one(f"#{map_id} .map-count").inner_text().split(" of ")[1].split(" page")[0])


def only(session, name, count):
    """The cells and the row of a function, one of `count` whose names contain its name."""
    session.one("#function-search").fill(name)
    expect(session.one("#function-status")).to_have_text(re.compile(f"^{count} of "))
    sorted_out(session)
    names = column(session, "name")
    at = names.index(name)
    return {key: column(session, key)[at] for key in ("executed", "fragments", "old", "new")}, at


def check_table(session):
    """How much of a function runs, and where its copies are."""
    hot, at = only(session, "step_3", 11)
    assert hot["executed"] == "100\u202f%" or hot["executed"].startswith("100"), hot
    assert int(hot["fragments"]) >= 1 and hot["old"] != hot["new"], hot
    row = session.one("#function-rows .row").nth(at)
    row.hover()
    tooltip = session.one("#tooltip")
    expect(tooltip).to_contain_text("bytes are executed")
    expect(tooltip).to_contain_text("bytes 0 to ")
    assert hot["new"] in tooltip.inner_text(), tooltip.inner_text()
    assert session.one("#tooltip .track.parts .fill").count() == 1
    cold, _ = only(session, "step_110", 1)
    assert cold["executed"] == "–" and cold["fragments"] == "0" and cold["old"] == cold["new"], cold
    session.one("#function-search").fill("")
    expect(session.one("#function-status")).not_to_contain_text(" of ")
    session.one("#function-head [data-key=executed] button").click()
    sorted_out(session)
    assert column(session, "executed")[0].startswith("100"), column(session, "executed")[:3]


def check_map(session):
    """The copies are pages after the text, and name the functions whose code they are."""
    assert pages_of(session, "map-new") > pages_of(session, "map-old")
    session.one("#map-new .map-box").focus()
    session.page.keyboard.press("End")
    session.page.keyboard.press("p")
    session.page.keyboard.press("n")
    tooltip = session.one("#tooltip")
    expect(tooltip).to_contain_text("touched first")
    assert session.one("#tooltip .tip-names li:not(.idle)").count() > 0, tooltip.inner_text()
    expect(session.one("#map-explained")).to_contain_text("in copies and in originals")


def main(page, copies, directory):
    page = pathlib.Path(page).resolve()
    copies = json.loads(copies)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        session = Session(browser, page, "light")
        facts = session.one("#facts").inner_text()
        assert f"copied from {copies['functions']} functions" in facts and "of their code is executed" in facts, facts
        assert session.one("#biggest .track.parts .fill").count() > 0, "no function shows what runs of it"
        check_map(session)
        check_table(session)
        check_barriers(session)
        session.page.screenshot(path=str(directory / "light.png"), full_page=True)
        session.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

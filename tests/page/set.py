"""Uses a page of `reorder report --set` in headless Chromium; status 1 with the reason when it does not work.

Usage: set.py PAGE FIGURES SCREENSHOTS PROCESSES, where FIGURES is a JSON list: for each image the faults before and after. PROCESSES
is one, too: for each measured process its title, its numbers of kinds and of files, and all faults before and after.
"""

import json
import pathlib
import sys

from browser import Session, check_barriers, expect
from playwright.sync_api import sync_playwright


def check_processes(session, processes):
    """Each of the measured processes can be chosen and is shown whole."""
    buttons = session.one("#process-which").get_by_role("radio")
    expect(buttons).to_have_count(len(processes))
    for at, (title, kinds, files, before, after) in reversed(list(enumerate(processes))):
        buttons.nth(at).click()
        expect(session.one("#process-note")).to_contain_text(title)
        expect(session.page.locator("#process-kinds tbody tr")).to_have_count(kinds + 1)
        expect(session.page.locator("#process-files tbody tr")).to_have_count(files)
        last = session.page.locator("#process-kinds tbody tr").last.inner_text()
        assert before in last and after in last, f"{title}: {last!r}, not {before} and {after}"


def main(page, figures, directory, processes):
    page = pathlib.Path(page).resolve()
    figures = json.loads(figures)
    processes = json.loads(processes)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for width in (1280, 390):
            session = Session(browser, page, "light", width=width)
            expect(session.one("#set tbody tr")).to_have_count(len(figures) + 1)
            check_barriers(session)
            check_processes(session, processes)
            for at, (before, after) in enumerate(figures):
                session.one("#image").select_option(str(at))
                session.page.wait_for_load_state("load")
                expect(session.one("html")).to_have_attribute("data-names", "ready", timeout=60_000)
                heading = session.one("#headline").inner_text()
                assert before in heading and after in heading, f"image {at}: {heading!r}, not {before} and {after}"
                assert session.one("#image").input_value() == str(at)
                rows = session.page.evaluate("document.querySelectorAll('#function-rows .row').length")
                assert rows > 0, f"image {at} has no functions"
            assert "image=" in session.page.evaluate("location.href")
            session.page.screenshot(path=str(directory / f"{width}.png"), full_page=True)
            # Each choice loads the page again, and nothing else.
            assert set(url.split("#")[0] for url in session.requests if not url.startswith("data:")) == {page.as_uri()}
            assert not session.said, session.said
            session.context.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Opens a page of `reorder report` some times in headless Chromium; prints the least seconds from the request until all of it is
drawn and answers.

Usage: opening.py PAGE TIMES
"""

import pathlib
import sys
import time

from playwright.sync_api import sync_playwright


def main(page, times):
    address = pathlib.Path(page).resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        best = None
        for _ in range(int(times)):
            # The cache of earlier runs is not used.
            context = browser.new_context(viewport={"width": 1360, "height": 900})
            tab = context.new_page()
            start = time.perf_counter()
            tab.goto(address)
            tab.locator("html[data-state=ready]").wait_for(timeout=120_000)
            tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            seconds = time.perf_counter() - start
            best = seconds if best is None else min(best, seconds)
            context.close()
        browser.close()
    print(f"{best:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

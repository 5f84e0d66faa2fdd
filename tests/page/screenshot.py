"""Takes a picture of a page of `reorder report` for the documents.

Usage: screenshot.py PAGE WIDTH HEIGHT FILE
"""

import pathlib
import sys

from playwright.sync_api import sync_playwright


def main(page, width, height, file):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": int(width), "height": int(height)}, color_scheme="light")
        tab.goto(pathlib.Path(page).resolve().as_uri())
        tab.locator("html[data-names=ready]").wait_for(timeout=120_000)
        tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        tab.screenshot(path=file)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Uses a page of `reorder report` as a reader does, in headless Chromium, and fails with the error.

Usage: browser.py PAGE EXPECTED SCREENSHOTS

EXPECTED is a JSON file: `before`, `after` (or null) and `bound` as in the heading, `functions`, `scenarios`, `touched`
(for each scenario the pages touched before and after), `search` (a word and how many functions it finds) and `hostile` (names
that must appear unchanged). SCREENSHOTS is a directory.
"""

import json
import pathlib
import sys

from playwright.sync_api import expect, sync_playwright

SPACE = "\u202f"


def number(text):
    return int(text.replace(SPACE, "").replace(" ", ""))


class Session:
    """One page under one colour scheme, with all its messages and requests."""

    def __init__(self, browser, path, scheme, width=1360):
        self.path = path
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said = []
        self.requests = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"uncaught: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}") or dialog.dismiss())
        self.page.goto(path.as_uri())
        expect(self.one("html")).to_have_attribute("data-names", "ready", timeout=60_000)

    def close(self):
        assert not self.said, f"the page said: {self.said}"
        wanted = [url for url in self.requests if not url.startswith("data:")]
        assert wanted == [self.path.as_uri()], f"the page asked for {wanted}"
        self.context.close()

    def one(self, selector):
        return self.page.locator(selector)

    def settle(self):
        """Waits until the drawing is on the screen."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def pixels(self, selector):
        return self.page.evaluate("(selector) => document.querySelector(selector).toDataURL()", selector)


def check_heading(session, expected):
    heading = session.one("#headline").inner_text()
    wanted = [expected[key] for key in ("before", "after") if expected[key] is not None]
    for figure in wanted:
        assert figure in heading, f"the heading says {heading!r}, not {figure!r}"
    assert expected["bound"] in session.one("#subline").inner_text(), session.one("#subline").inner_text()


def touched_cells(session, map_id):
    """Middles of the coloured cells of a map, in the window."""
    return session.page.evaluate(
        """(id) => {
          const box = document.querySelector(`#${id} .map-box`);
          const drawn = box.querySelector("canvas");
          const copy = Object.assign(document.createElement("canvas"), { width: drawn.width, height: drawn.height });
          const context = copy.getContext("2d", { willReadFrequently: true });
          context.drawImage(drawn, 0, 0);
          const ratio = drawn.width / box.clientWidth;
          const bounds = box.getBoundingClientRect();
          const found = [];
          for (let y = 3; y < box.clientHeight; y += 3) {
            for (let x = 80; x < box.clientWidth; x += 3) {
              const [red, green, blue, alpha] = context.getImageData(x * ratio, y * ratio, 1, 1).data;
              const spread = Math.max(red, green, blue) - Math.min(red, green, blue);
              if (alpha === 255 && spread > 40) found.push([bounds.left + x, bounds.top + y]);
            }
          }
          return found;
        }""",
        map_id,
    )


def check_hover(session, is_compared):
    """A tooltip with the functions of the page, which does not flicker."""
    session.one("#map-old").scroll_into_view_if_needed()
    session.settle()
    cells = touched_cells(session, "map-old")
    assert cells, "no page of the map is coloured"
    x, y = cells[len(cells) // 2]
    tooltip = session.one("#tooltip")
    session.page.mouse.move(x, y)
    expect(tooltip).to_be_visible()
    text = tooltip.inner_text()
    assert "touched first" in text and "function" in text, f"the tooltip says {text!r}"
    assert session.one("#tooltip .tip-names li").count() > 0, "the tooltip names no function"
    session.page.evaluate(
        """() => {
          window.changes = 0;
          const seen = new MutationObserver((changes) => { window.changes += changes.length; });
          seen.observe(document.getElementById("tooltip"), { childList: true, subtree: true, attributeFilter: ["hidden"] });
        }"""
    )
    session.page.mouse.move(x + 1, y)
    session.page.mouse.move(x, y + 1)
    session.settle()
    assert session.page.evaluate("window.changes") == 0, "the tooltip is rebuilt while the pointer stays on a page"
    if is_compared:
        marks = session.page.evaluate(
            """() => {
              const canvas = document.querySelectorAll("#map-new canvas")[1];
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              return data.some((value, at) => at % 4 === 3 && value > 0);
            }"""
        )
        assert marks, "the other map does not show where the page's functions went"
    session.page.mouse.move(2, 2)
    expect(tooltip).to_be_hidden()


def check_touch(session):
    """Touching a page of the map with a finger shows its functions, as a pointer does."""
    session.one("#map-old").scroll_into_view_if_needed()
    session.settle()
    x, y = touched_cells(session, "map-old")[0]
    session.page.evaluate(
        """([x, y]) => {
          const box = document.querySelector("#map-old .map-box");
          box.setPointerCapture = () => {};
          const at = { pointerId: 7, pointerType: "touch", clientX: x, clientY: y, bubbles: true };
          for (const type of ["pointerdown", "pointerup", "pointerleave"]) box.dispatchEvent(new PointerEvent(type, at));
        }""",
        [x, y],
    )
    expect(session.one("#tooltip")).to_contain_text("touched first")


def check_zoom(session, map_id, is_large):
    """By wheel and buttons; dragging moves the text, if it is larger than the window."""
    box = session.one(f"#{map_id} .map-box")
    level = session.one("#zoom-level")
    whole = session.pixels("#map-old canvas")
    bounds = box.bounding_box()
    x, y = bounds["x"] + bounds["width"] * 0.6, bounds["y"] + bounds["height"] * 0.4
    session.page.mouse.move(x, y)
    scrolled = session.page.evaluate("scrollY")
    session.page.keyboard.down("Control")
    session.page.mouse.wheel(0, -600)
    session.page.keyboard.up("Control")
    expect(level).not_to_have_text("1.0×")
    session.settle()
    zoomed = session.pixels("#map-old canvas")
    assert zoomed != whole, "the wheel does not zoom"
    assert session.page.evaluate("scrollY") == scrolled, "the wheel scrolls the page while it zooms"
    session.page.mouse.move(x, y)
    session.page.mouse.down()
    session.page.mouse.move(x - 70, y - 40, steps=4)
    session.page.mouse.up()
    session.settle()
    if is_large:
        assert session.pixels("#map-old canvas") != zoomed, "dragging does not move the text"
    session.one("#zoom-reset").click()
    expect(level).to_have_text("1.0×")
    session.settle()
    assert session.pixels("#map-old canvas") == whole, "the whole text is not shown again"
    session.page.mouse.dblclick(x, y)
    expect(level).to_have_text("2.0×")
    session.one("#zoom-reset").click()
    session.one("#zoom-in").click()
    expect(level).to_have_text("1.6×")
    session.one("#zoom-out").click()
    expect(level).to_have_text("1.0×")


def check_map_keys(session, map_id):
    """The map is read and zoomed without a pointer."""
    box = session.one(f"#{map_id} .map-box")
    box.focus()
    session.page.keyboard.press("Home")
    session.page.keyboard.press("n")
    expect(session.one("#tooltip")).to_be_visible()
    first = session.one("#tooltip .tip-title").inner_text()
    session.page.keyboard.press("n")
    assert session.one("#tooltip .tip-title").inner_text() != first or session.one(".map-count strong").first.inner_text() == "1"
    expect(session.one("#announcement")).to_contain_text("page")
    session.page.keyboard.press("+")
    expect(session.one("#zoom-level")).not_to_have_text("1.0×")
    session.page.keyboard.press("0")
    expect(session.one("#zoom-level")).to_have_text("1.0×")
    session.page.keyboard.press("Home")
    session.page.keyboard.press("n")
    session.page.keyboard.press("Enter")
    expect(session.one("#function-page")).to_be_visible()
    listed = session.one("#function-table").get_attribute("aria-rowcount")
    assert int(listed) >= 2, "Enter does not list the functions of the page"
    session.one("#function-page").click()
    expect(session.one("#function-page")).to_be_hidden()


def check_colours(session, expected):
    """Both ways to colour, and the choice of a scenario."""
    canvas = "#map-old canvas"
    by_time = session.pixels(canvas)
    session.page.get_by_role("radio", name="Scenarios").click()
    session.settle()
    legend = session.one("#legend").inner_text()
    if expected["scenarios"] > 1:
        assert session.pixels(canvas) != by_time, "the map does not change with what it is coloured by"
        assert f"{expected['scenarios']} scenarios" in legend, legend
    session.page.get_by_role("radio", name="First touch").click()
    session.settle()
    assert session.pixels(canvas) == by_time
    if expected["scenarios"] > 1:
        touched = session.one("#map-old .map-count").inner_text()
        heading = session.one("#headline").inner_text()
        session.one("#scenario").select_option(index=expected["scenarios"])
        session.settle()
        assert session.one("#headline").inner_text() != heading, "the heading does not follow the scenario"
        assert session.one("#map-old .map-count").inner_text() != touched, "the map does not follow the scenario"
        session.one("#scenario").select_option(index=0)
        assert session.one("#headline").inner_text() == heading
    if session.one("#model option").count() > 1:
        heading = session.one("#subline").inner_text()
        session.one("#model").select_option(index=1)
        assert session.one("#subline").inner_text() != heading, "the heading does not follow the model"
        session.one("#model").select_option(index=0)


def check_touched(session, expected):
    """The maps show as many pages as were simulated to fault."""
    for at, (before, after) in enumerate(expected["touched"]):
        session.one("#scenario").select_option(str(at))
        expect(session.one("#map-old .map-count strong")).to_have_text(before)
        if after is not None:
            expect(session.one("#map-new .map-count strong")).to_have_text(after)
    session.one("#scenario").select_option(index=0)


def check_curve(session, expected):
    curve = session.one("#curve")
    curve.scroll_into_view_if_needed()
    lines = session.one("#curve path.curve").count()
    assert lines == (2 if expected["after"] is None else 3), f"{lines} curves"
    bounds = curve.bounding_box()
    session.page.mouse.move(bounds["x"] + bounds["width"] / 2, bounds["y"] + bounds["height"] / 2)
    expect(session.one("#tooltip")).to_contain_text("bound")
    session.page.mouse.move(2, 2)
    curve.focus()
    session.page.keyboard.press("End")
    text = session.one("#tooltip").inner_text()
    for key in ("after", "bound"):
        if expected[key] is not None:
            assert expected[key] in text, f"the end of the curve says {text!r}"
    session.page.keyboard.press("Escape")
    expect(session.one("#tooltip")).to_be_hidden()
    for name in ("Functions run", "Time"):
        button = session.one("#axis").get_by_role("radio", name=name)
        if button.count():
            button.click()
            assert button.get_attribute("aria-checked") == "true"


def column(session, key):
    return session.one(f"#function-rows .cell.{key}").all_inner_texts()


def sorted_out(session):
    """Waits until the rows are in their order. The policy of the page forbids predicates as text."""
    expect(session.one("#function-table:not([aria-busy])")).to_be_visible()
    session.settle()


def sort_by(session, key):
    session.one(f"#function-head [data-key={key}] button").click()
    sorted_out(session)
    return session.one(f"#function-head [data-key={key}]").get_attribute("aria-sort")


def check_table(session, expected):
    """Search, filters, order and keys of the function table."""
    table = session.one("#function-table")
    status = session.one("#function-status")
    table.scroll_into_view_if_needed()
    expect(status).to_have_text(f"{expected['functions_text']} function{'' if expected['functions'] == 1 else 's'}")
    shown = session.one("#function-rows .row").count()
    assert shown <= 60, f"{shown} rows are in the document"

    assert sort_by(session, "size") == "descending"
    sizes = [number(text) for text in column(session, "size")]
    assert sizes == sorted(sizes, reverse=True), sizes
    assert sort_by(session, "size") == "ascending"
    sizes = [number(text) for text in column(session, "size")]
    assert sizes == sorted(sizes), sizes
    assert sort_by(session, "name") == "ascending"
    names = [name for name in column(session, "name") if not name.startswith("function@")]
    assert names == sorted(names), names
    assert sort_by(session, "old") == "ascending"
    addresses = [int(text, 16) for text in column(session, "old")]
    assert addresses == sorted(addresses), addresses

    word, count = expected["search"]
    search = session.one("#function-search")
    search.fill(word.upper())
    expect(status).to_contain_text(f"{count} of ")
    if count:
        assert all(word.lower() in name.lower() for name in column(session, "name")), column(session, "name")
    search.fill("nothing is called so")
    expect(session.one("#function-none")).to_be_visible()
    search.fill("")
    expect(status).to_have_text(f"{expected['functions_text']} function{'' if expected['functions'] == 1 else 's'}")

    session.one("#function-filter").get_by_role("radio", name="Run at startup").click()
    sorted_out(session)
    assert "–" not in column(session, "rank"), "functions that do not run are listed as running"
    session.one("#function-filter").get_by_role("radio", name="All").click()
    expect(status).to_have_text(f"{expected['functions_text']} function{'' if expected['functions'] == 1 else 's'}")

    table.focus()
    session.page.keyboard.press("End")
    session.settle()
    last = session.one("#function-rows .row.current")
    assert last.get_attribute("aria-rowindex") == str(expected["functions"] + 1), "End does not reach the last function"
    expect(last).to_be_in_viewport()
    session.page.keyboard.press("Home")
    session.page.keyboard.press("ArrowDown")
    session.settle()
    wanted = "3" if expected["functions"] > 1 else "2"
    assert session.one("#function-rows .row.current").get_attribute("aria-rowindex") == wanted
    row = session.one("#function-rows .row").first.bounding_box()
    session.page.mouse.move(row["x"] + 60, row["y"] + 10)
    expect(session.one("#tooltip")).to_contain_text("bytes at 0x")
    session.page.mouse.move(2, 2)


def check_hostile(session, expected):
    """Names are text, whatever characters they contain."""
    assert session.page.evaluate("window.pwned === undefined"), "a name was run"
    assert session.one("img, iframe, object, embed").count() == 0, "a name became markup"
    for name in expected["hostile"]:
        session.one("#function-search").fill(name)
        expect(session.one("#function-rows .cell.name")).to_have_text([name])
    session.one("#function-search").fill("")


CONTRAST = """() => {
  const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parse = (text) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data);
  };
  const luminance = ([red, green, blue]) =>
    0.2126 * channel(red / 255) + 0.7152 * channel(green / 255) + 0.0722 * channel(blue / 255);
  const poor = [];
  for (const element of document.querySelectorAll("main *, header *, footer *, .controls *")) {
    const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!isText || !element.checkVisibility() || element.closest(":disabled, .visually-hidden, svg, option, noscript")) continue;
    const style = getComputedStyle(element);
    let under = element;
    let ground = [0, 0, 0, 0];
    while (under && ground[3] < 250) {
      ground = parse(getComputedStyle(under).backgroundColor);
      under = under.parentElement;
    }
    const [one, other] = [luminance(parse(style.color)), luminance(ground)].sort((a, b) => b - a);
    const isLarge = parseFloat(style.fontSize) >= 24;
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < (isLarge ? 3 : 4.5)) poor.push(`${element.textContent.trim().slice(0, 30)} (${ratio.toFixed(2)})`);
  }
  return poor;
}"""


def check_access(session):
    """Names of controls, contrast of text, ids that are unique."""
    nameless = session.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=application], [role=grid], [role=radiogroup]")]
          .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.length))
          .map((element) => element.outerHTML.slice(0, 80))"""
    )
    assert not nameless, f"controls without a name: {nameless}"
    ids = session.page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids)), "an id is given twice"
    poor = session.page.evaluate(CONTRAST)
    assert not poor, f"text of too little contrast: {poor}"
    wide = session.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than the window"


def check_barriers(session):
    """axe-core, with all of its rules, finds nothing."""
    source = pathlib.Path(sys.prefix, "node_modules/axe-core/axe.min.js")
    assert source.is_file(), f"{source} is missing: run scripts/install-page-tools"
    session.page.evaluate(source.read_text())
    found = session.page.evaluate(
        """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
          .map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.target.join(" ")).join(", ")}`)"""
    )
    assert not found, f"axe-core finds: {found}"


def check_address(session, expected):
    """A link shows what its sender saw: the choices stand in the address."""
    at = session.one("#model option").count() - 1
    session.one("#model").select_option(index=at)
    session.one("#scenario").select_option(index=expected["scenarios"] - 1)
    shown = session.one("#headline").inner_text(), session.one("#subline").inner_text()
    address = session.page.evaluate("location.href")
    assert "model=" in address and "scenario=" in address, address
    other = session.context.new_page()
    other.goto(address)
    expect(other.locator("html")).to_have_attribute("data-names", "ready", timeout=60_000)
    again = other.locator("#headline").inner_text(), other.locator("#subline").inner_text()
    assert again == shown, f"{address} shows {again}, not {shown}"
    assert other.locator("#model").input_value() == str(at)
    # Of another page, or written by hand.
    other.evaluate("location.hash = '#model=none&scenario=<b>'")
    assert other.locator("#headline").inner_text() == shown[0]
    other.close()
    session.one("#model").select_option(index=0)
    session.one("#scenario").select_option(index=0)


def check_union(session, expected):
    """Where runs share pages, the sum on top is more than the map shows: the page says both."""
    text = session.one("#map-union").inner_text()
    if expected["scenarios"] < 2:
        assert text == "", text
        return
    touched = session.one("#map-old .map-count strong").inner_text()
    assert touched in text and expected["before"] in text, text


def check_phone(session):
    """The bar that stays on top is low, and what is wider than its frame shows it."""
    height = session.one(".controls").bounding_box()["height"]
    assert height <= 60, f"the bar is {height} pixels high"
    cues = session.page.evaluate(
        """() => [...document.querySelectorAll(".scroll")].filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth)
          .filter((box) => !getComputedStyle(box).backgroundImage.includes("gradient") || box.tabIndex !== 0)
          .map((box) => box.id || box.className)"""
    )
    assert not cues, f"cut without a cue, or out of reach of the keyboard: {cues}"


def check_print(session, directory):
    session.page.emulate_media(media="print")
    assert session.one(".controls").is_hidden(), "controls are printed"
    printed = session.page.pdf(path=str(directory / "print.pdf"), format="A4", print_background=True)
    assert printed.startswith(b"%PDF"), "nothing is printed"
    session.page.emulate_media(media="screen")


def main(page, expected, directory):
    page = pathlib.Path(page).resolve()
    expected = json.loads(pathlib.Path(expected).read_text())
    expected["functions_text"] = f"{expected['functions']:,}".replace(",", SPACE)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # Tests run as root in containers, where Chromium has no sandbox of its own.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        grounds = {}
        for scheme in ("light", "dark"):
            session = Session(browser, page, scheme)
            session.settle()
            session.page.screenshot(path=str(directory / f"{scheme}.png"), full_page=True)
            grounds[scheme] = session.page.evaluate("getComputedStyle(document.body).backgroundColor")
            check_heading(session, expected)
            check_access(session)
            check_barriers(session)
            check_union(session, expected)
            check_hover(session, expected["after"] is not None)
            check_zoom(session, "map-old", expected["functions"] > 100)
            check_map_keys(session, "map-old")
            check_colours(session, expected)
            check_touched(session, expected)
            if scheme == "light":
                check_address(session, expected)
            check_curve(session, expected)
            check_table(session, expected)
            check_hostile(session, expected)
            if scheme == "light":
                session.one("#theme").get_by_role("radio", name="Dark").click()
                switched = session.page.evaluate("getComputedStyle(document.body).backgroundColor")
                session.one("#theme").get_by_role("radio", name="Auto").click()
                check_print(session, directory)
            session.close()
        assert grounds["light"] != grounds["dark"], "both colour schemes look the same"
        assert switched == grounds["dark"], "the switch does not darken the page"
        for width in (1280, 390):
            narrow = Session(browser, page, "light", width=width)
            check_access(narrow)
            check_barriers(narrow)
            if width < 600:
                check_phone(narrow)
            narrow.page.screenshot(path=str(directory / f"{width}.png"), full_page=True)
            narrow.close()
        for width in (360, 320):
            phone = Session(browser, page, "light", width=width)
            wide = phone.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"the page is {wide} pixels wider than a window of {width}"
            check_touch(phone)
            phone.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

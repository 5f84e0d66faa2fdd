// The text page by page: one cell a page, in rows from left to right. Two maps show the same part of the text.

const GUTTER = 76;
const LARGEST_CELL = 44;
const SMALLEST_BOX = 132;
const SMALLEST_ROOM = 5; // smallest size of a cell, in pixels, with a gap between cells
const LABEL_ROOM = 34; // smallest size of a cell, in pixels, that shows its number

class PageMap {
  constructor(program, layout, title, figure, view, actions) {
    this.program = program;
    this.layout = layout;
    this.title = title;
    this.view = view;
    this.actions = actions;
    this.cursor = -1; // page under the pointer or the keyboard's cursor
    this.related = new Set(); // pages that hold the functions of the other map's page
    this.figure = figure;
    this.count = figure.querySelector(".map-count");
    this.box = figure.querySelector(".map-box");
    [this.canvas, this.overlay] = this.box.querySelectorAll("canvas");
    view.maps.push(this);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  /** Shows another model's pages or another scenario. */
  update(pages, start, by, scenarioCount) {
    if (pages !== this.pages) this.box.style.height = "";
    if (pages !== this.pages || start !== this.start) {
      this.touches = new Touches(this.program, this.layout, pages, start);
      if (pages !== this.pages) this.cursor = -1;
    }
    this.pages = pages;
    this.start = start;
    this.by = by;
    this.scenarioCount = scenarioCount;
    this.count.replaceChildren(
      element("strong", {}, grouped(this.touches.touched)), ` of ${plural(pages.count, "page")} touched`);
    this.box.setAttribute("aria-label",
      `${this.title}: ${grouped(this.touches.touched)} of ${grouped(pages.count)} pages of ${bytesText(pages.size)} ` +
      "are touched. Arrow keys go from page to page, plus and minus zoom, Enter lists the functions of a page.");
    this.resize();
  }

  resize() {
    if (!this.pages) return;
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    if (width === 0) return;
    const ratio = printing.isOn ? 3 : devicePixelRatio;
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.ratio = ratio;
    this.width = width - GUTTER;
    this.height = height;
    // The longest rows whose cells, as squares, fill the box.
    const count = Math.max(1, this.pages.count);
    let cell = Math.min(LARGEST_CELL, Math.sqrt((this.width * this.height) / count));
    let columns = Math.max(1, Math.floor(this.width / cell));
    while (Math.ceil(count / columns) * cell > this.height) {
      columns += 1;
      cell = this.width / columns;
    }
    this.columns = columns;
    this.rows = Math.ceil(count / columns);
    this.cell = Math.min(LARGEST_CELL, this.width / columns);
    // The box shrinks to a small text; both maps of one build have as many pages and the same height.
    if (this.cell === LARGEST_CELL && this.rows * this.cell < height) {
      this.box.style.height = `${Math.max(SMALLEST_BOX, this.rows * this.cell)}px`;
    }
    this.view.redraw();
  }

  get size() {
    return this.cell * this.view.zoom;
  }

  /** Left upper corner of a page's cell. */
  corner(page) {
    const size = this.size;
    return [
      GUTTER + (page % this.columns) * size - this.view.x * this.width,
      Math.floor(page / this.columns) * size - this.view.y * this.width,
    ];
  }

  pageAt(x, y) {
    const size = this.size;
    const column = Math.floor((x - GUTTER + this.view.x * this.width) / size);
    const row = Math.floor((y + this.view.y * this.width) / size);
    const page = row * this.columns + column;
    const isCell = x >= GUTTER && column >= 0 && column < this.columns && row >= 0;
    return isCell && page < this.pages.count ? page : -1;
  }

  /** Zooms around the point (x, y), by default the centre. */
  zoomBy(factor, x = GUTTER + this.width / 2, y = this.height / 2) {
    const view = this.view;
    const most = Math.max(1, 120 / this.cell);
    const zoom = Math.min(most, Math.max(1, view.zoom * factor));
    const scaled = zoom / view.zoom;
    view.x = (view.x + (x - GUTTER) / this.width) * scaled - (x - GUTTER) / this.width;
    view.y = (view.y + y / this.width) * scaled - y / this.width;
    view.zoom = zoom;
    this.settle();
  }

  panBy(x, y) {
    this.view.x -= x / this.width;
    this.view.y -= y / this.width;
    this.settle();
  }

  /** Keeps the text in sight. */
  settle() {
    const view = this.view;
    const size = this.size;
    const inside = (at, whole, seen) => Math.min(Math.max(0, at), Math.max(0, (whole - seen) / this.width));
    view.x = inside(view.x, this.columns * size, this.width);
    view.y = inside(view.y, this.rows * size, this.height);
    tooltip.hide();
    this.actions.zoomed(view.zoom);
    view.redraw();
  }

  draw() {
    if (!this.pages || !this.ratio) return;
    const context = this.canvas.getContext("2d");
    const colours = palette();
    const size = this.size;
    const gap = size >= SMALLEST_ROOM ? Math.min(2, size / 8) : 0;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width + GUTTER, this.height);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.width, this.height);
    context.clip();
    const [left, top] = this.corner(0);
    const firstRow = Math.max(0, Math.floor(-top / size));
    const lastRow = Math.min(this.rows - 1, Math.floor((this.height - top) / size));
    const firstColumn = Math.max(0, Math.floor((GUTTER - left) / size));
    const lastColumn = Math.min(this.columns - 1, Math.floor((this.width + GUTTER - left) / size));
    const labels = [];
    const snapped = (at) => Math.round(at * this.ratio) / this.ratio;
    for (let row = firstRow; row <= lastRow; row++) {
      const y = snapped(top + row * size);
      const height = snapped(top + (row + 1) * size) - y - gap;
      for (let column = firstColumn; column <= lastColumn; column++) {
        const page = row * this.columns + column;
        if (page >= this.pages.count) break;
        const late = this.touches.late(page, this.by, this.scenarioCount);
        const x = snapped(left + column * size);
        const width = snapped(left + (column + 1) * size) - x - gap;
        context.fillStyle = late < 0 ? colours.untouched : colourAt(late);
        context.fillRect(x, y, width, height);
        if (late >= 0 && size >= LABEL_ROOM) labels.push([page, x + width / 2, y + height / 2, late]);
      }
    }
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${Math.min(13, size / 3.4)}px system-ui, sans-serif`;
    for (const [page, x, y, late] of labels) {
      context.fillStyle = inkAt(late);
      context.fillText(this.label(page), x, y);
    }
    context.restore();
    this.drawAddresses(context, firstRow, lastRow, top, size);
    this.drawOverlay();
  }

  label(page) {
    return this.by === "first"
      ? `${Math.floor(((this.touches.first[page] - 1) / this.touches.length) * 100)} %`
      : String(this.touches.scenarios[page]);
  }

  drawAddresses(context, firstRow, lastRow, top, size) {
    context.fillStyle = palette().faint;
    context.font = "10.5px ui-monospace, monospace";
    context.textAlign = "right";
    context.textBaseline = "top";
    const every = Math.max(1, Math.ceil(34 / size));
    for (let row = Math.ceil(firstRow / every) * every; row <= lastRow; row += every) {
      const y = top + row * size;
      if (y < -2 || y > this.height - 10) continue;
      context.fillText(this.program.address(this.pages.start(row * this.columns)), GUTTER - 10, y + Math.min(3, size / 4));
    }
  }

  drawOverlay() {
    const context = this.overlay.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width + GUTTER, this.height);
    context.beginPath();
    context.rect(GUTTER - 3, 0, this.width + 6, this.height);
    context.save();
    context.clip();
    const outline = (page, width) => {
      const [x, y] = this.corner(page);
      const size = Math.max(this.size, 5);
      context.lineWidth = width + 2;
      context.strokeStyle = palette().edge;
      context.strokeRect(x - 1, y - 1, size, size);
      context.lineWidth = width;
      context.strokeStyle = palette().mark;
      context.strokeRect(x - 1, y - 1, size, size);
    };
    for (const page of this.related) outline(page, 1.5);
    if (this.cursor >= 0) outline(this.cursor, 2.5);
    context.restore();
  }

  /** Functions of which code on a page runs. */
  runningOn(page) {
    const from = this.pages.start(page);
    const running = new Set();
    this.start.order.forEach((index, rank) => this.start.each(this.layout, rank, (start, end) => {
      if (start < from + this.pages.size && end > from) running.add(index);
    }));
    return running;
  }

  /** Functions on a page: by first touch, then those that do not run there. */
  functionsOn(page) {
    const start = this.pages.start(page);
    const ranks = this.start.ranks(this.program.count);
    this.running = this.runningOn(page);
    const key = (index) => (this.running.has(index) ? ranks[index] : Infinity);
    const found = this.layout.between(start, start + this.pages.size);
    return found.sort((one, other) => (key(one) === key(other) ? 0 : key(one) - key(other)));
  }

  point(page) {
    if (page === this.cursor) return;
    this.cursor = page;
    this.related = new Set();
    this.functions = page < 0 ? [] : this.functionsOn(page);
    this.actions.pointed(this, this.functions);
    this.drawOverlay();
  }

  /** Outlines the pages that hold these functions. */
  relate(functions) {
    this.cursor = -1;
    this.related = new Set();
    for (const index of functions.slice(0, 2000)) {
      this.layout.each(index, (start, end) => this.pages.visit(start, end, (page) => this.related.add(page)));
    }
    this.drawOverlay();
  }

  /** The facts about the page, in short lines. */
  facts(page) {
    const rank = this.touches.first[page];
    if (rank === 0) return ["not touched"];
    const times = this.start.microseconds;
    const index = this.start.order[rank - 1];
    const time = times ? ` at ${timeText(times[rank - 1])}` : "";
    const facts = [`touched first${time} by ${this.program.name(index)}, function ${grouped(rank)} of ${grouped(this.touches.length)}`];
    if (this.scenarioCount > 1) facts.push(`by ${this.touches.scenarios[page]} of ${plural(this.scenarioCount, "scenario")}`);
    return facts;
  }

  build(page) {
    const shown = 12;
    const runs = this.functions.filter((index) => this.running.has(index)).length;
    const rows = this.functions.slice(0, shown).map((index) =>
      element("li", { class: this.running.has(index) ? "" : "idle" },
        element("span", { class: "name" }, this.program.name(index)),
        this.program.pinOf[index] ? element("span", { class: "badge" }, "pinned") : null));
    const more = this.functions.length - shown;
    return [
      element("div", { class: "tip-title" },
        `Page ${grouped(page)} · ${this.program.address(this.pages.start(page))}`),
      ...this.facts(page).map((fact) => element("div", {}, fact)),
      element("div", { class: "tip-heading" },
        this.functions.length === 0 ? "No function" : `${runs} of ${plural(this.functions.length, "function")} run`),
      element("ul", { class: "tip-names" }, ...rows),
      more > 0 ? element("div", { class: "faint" }, `and ${grouped(more)} more`) : "",
    ];
  }

  showTip(x, y) {
    if (this.cursor < 0) return tooltip.hide();
    const page = this.cursor;
    return tooltip.show(`${this.title}/${page}/${state.scenario}/${state.model}`, x, y, () => this.build(page));
  }

  listen() {
    const box = this.box;
    let drag = null;
    const pointAt = (event) => {
      const bounds = box.getBoundingClientRect();
      this.point(this.pageAt(event.clientX - bounds.left, event.clientY - bounds.top));
      this.showTip(event.clientX, event.clientY);
    };
    box.addEventListener("pointerdown", (event) => {
      clearTimeout(this.click);
      drag = { x: event.clientX, y: event.clientY, isMoved: false };
      // A finger does not hover: it points where it touches.
      if (event.pointerType === "touch") pointAt(event);
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      if (drag) {
        const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
        if (drag.isMoved || Math.hypot(x, y) > 4) {
          this.panBy(x, y);
          Object.assign(drag, { x: event.clientX, y: event.clientY, isMoved: true });
        }
        return;
      }
      pointAt(event);
    });
    box.addEventListener("pointerup", () => {
      // A second click may follow: a double click zooms.
      const page = this.cursor;
      if (drag && !drag.isMoved && page >= 0) this.click = setTimeout(() => this.actions.chosen(this, page), 250);
      drag = null;
    });
    box.addEventListener("pointercancel", () => { drag = null; });
    box.addEventListener("pointerleave", (event) => {
      // Lifting a finger leaves the map, but the page remains selected.
      if (drag || event.pointerType === "touch") return;
      this.point(-1);
      tooltip.hide();
    });
    box.addEventListener("dblclick", (event) => {
      clearTimeout(this.click);
      const bounds = box.getBoundingClientRect();
      this.zoomBy(2, event.clientX - bounds.left, event.clientY - bounds.top);
    });
    box.addEventListener("wheel", (event) => {
      // The wheel scrolls the page unless a modifier key is held or the map has the focus.
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== box) return;
      event.preventDefault();
      const bounds = box.getBoundingClientRect();
      const factor = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.002));
      this.zoomBy(factor, event.clientX - bounds.left, event.clientY - bounds.top);
    }, { passive: false });
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("blur", () => {
      this.point(-1);
      tooltip.hide();
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns,
      PageDown: this.columns * 8, PageUp: -this.columns * 8,
    };
    const last = this.pages.count - 1;
    if (event.key in steps) this.goTo(this.cursor < 0 ? 0 : Math.min(last, Math.max(0, this.cursor + steps[event.key])));
    else if (event.key === "Home") this.goTo(0);
    else if (event.key === "End") this.goTo(last);
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.6, ...this.centre());
    else if (event.key === "-") this.zoomBy(1 / 1.6, ...this.centre());
    else if (event.key === "0") { this.view.reset(); this.settle(); }
    else if (event.key === "n" || event.key === "p") this.goToTouched(event.key === "n" ? 1 : -1);
    else if (event.key === "Enter" && this.cursor >= 0) this.actions.chosen(this, this.cursor);
    else if (event.key === "Escape") { this.point(-1); tooltip.hide(); }
    else return;
    event.preventDefault();
  }

  goToTouched(step) {
    for (let page = this.cursor + step; page >= 0 && page < this.pages.count; page += step) {
      if (this.touches.first[page] > 0) return this.goTo(page);
    }
    return undefined;
  }

  centre() {
    if (this.cursor < 0) return [];
    const [x, y] = this.corner(this.cursor);
    return [x + this.size / 2, y + this.size / 2];
  }

  goTo(page) {
    this.point(page);
    let [x, y] = this.centre();
    const margin = this.size / 2;
    const beyond = (at, low, high) => Math.min(0, high - at - margin) + Math.max(0, low - at + margin);
    const [right, down] = [beyond(x, GUTTER, GUTTER + this.width), beyond(y, 0, this.height)];
    if (right !== 0 || down !== 0) {
      this.panBy(right, down);
      [x, y] = this.centre();
    }
    const bounds = this.box.getBoundingClientRect();
    this.showTip(bounds.left + x, bounds.top + y);
    const names = this.functions.slice(0, 5).map((index) => this.program.name(index)).join(", ");
    announce(`${this.title}, page ${page} at ${this.program.address(this.pages.start(page))}: ` +
      `${this.facts(page).join(", ")}. ${plural(this.functions.length, "function")}${names ? `: ${names}` : ""}`);
  }
}

// The table of all functions. The document holds only the visible rows, whatever the number of functions.

const ROW = 30;
// Browsers lay out about ten million pixels at most; beyond that, a pixel of the scroll bar stands for several rows.
const TALLEST = 6_000_000;

/** Sorts row numbers by text without blocking for long: it merges sorted runs and yields between them. */
async function sortSlowly(rows, compare, isWanted) {
  let [from, to] = [rows, new Uint32Array(rows.length)];
  let last = performance.now();
  const RUN = 64;
  for (let start = 0; start < rows.length; start += RUN) from.subarray(start, start + RUN).sort(compare);
  for (let width = RUN; width < rows.length; width *= 2) {
    for (let start = 0; start < rows.length; start += 2 * width) {
      const middle = Math.min(start + width, rows.length);
      const end = Math.min(start + 2 * width, rows.length);
      for (let left = start, right = middle, at = start; at < end; at++) {
        const isLeft = left < middle && (right >= end || compare(from[left], from[right]) <= 0);
        to[at] = isLeft ? from[left++] : from[right++];
        if ((at & 1023) === 0 && performance.now() - last > 40) {
          await new Promise((resume) => setTimeout(resume));
          if (!isWanted()) return null;
          last = performance.now();
        }
      }
    }
    [from, to] = [to, from];
  }
  return from;
}

/** How much of a function runs, as the table says it. */
function executedText(program, index) {
  const bytes = program.executedBytes(index);
  return bytes > 0 ? shareText(bytes / Math.max(1, program.sizes[index])) : "–";
}

/** A bar that stands for the whole function; the parts that run are filled. */
function executedBar(program, index) {
  const track = element("span", { class: "track parts", "aria-hidden": "true" });
  const size = Math.max(1, program.sizes[index]);
  for (const [offset, bytes] of program.executedParts(index)) {
    const fill = element("span", { class: "fill new" });
    fill.style.left = `${(offset / size) * 100}%`;
    fill.style.width = `${(bytes / size) * 100}%`;
    track.append(fill);
  }
  return track;
}

/** What the tooltip says of the parts of a function. */
function partsOf(program, index) {
  const told = [];
  const executed = program.executedBytes(index);
  if (executed > 0) {
    told.push(element("div", { class: "executed" }, `${grouped(executed)} of ${grouped(program.sizes[index])} bytes are executed`), executedBar(program, index));
  }
  const { fragments } = program;
  const copies = fragments ? fragments.of(index) : [];
  if (copies.length === 0) return told;
  const shown = 8;
  told.push(element("div", { class: "tip-heading" }, plural(copies.length, "fragment")),
    element("ul", { class: "tip-names fragments" }, ...copies.slice(0, shown).map((at) => element("li", {},
      `bytes ${grouped(fragments.offsets[at])} to ${grouped(fragments.offsets[at] + fragments.sizes[at])} at ${program.address(fragments.starts[at])}`))));
  if (copies.length > shown) told.push(element("div", { class: "faint" }, `and ${grouped(copies.length - shown)} more`));
  return told;
}

class FunctionTable {
  constructor(program) {
    this.program = program;
    this.filter = "all";
    this.query = "";
    this.page = null; // functions of the page chosen in a map
    this.sort = { column: "rank", isDescending: false };
    this.current = -1;
    this.turn = 0;
    this.columns = this.makeColumns();
    this.box = byId("function-table");
    this.head = byId("function-head");
    this.body = byId("function-rows");
    this.spacer = byId("function-spacer");
    this.status = byId("function-status");
    this.makeHead();
    if (program.count < 17) this.box.style.height = `${(program.count + 2) * ROW}px`;
    byId("function-search").addEventListener("input", settled(120, () => {
      this.query = byId("function-search").value.trim();
      this.refresh();
    }));
    segments(byId("function-filter"), "Which functions", [["all", "All"], ["run", "Run at startup"], ["pinned", "Pinned"]], "all",
      (value) => { this.filter = value; this.refresh(); });
    byId("function-page").addEventListener("click", () => { this.page = null; this.refresh(); byId("function-search").focus(); });
    this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("pointermove", (event) => this.pointed(event));
    this.body.addEventListener("pointerleave", () => tooltip.hide());
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-row]");
      if (row) this.goTo(Number(row.dataset.row));
    });
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  makeColumns() {
    const { program } = this;
    const isText = true;
    const columns = [
      { key: "name", title: "Function", isText, cell: (index) => program.name(index) },
      { key: "size", title: "Size", unit: "bytes", value: (index) => program.sizes[index], cell: (index) => grouped(program.sizes[index]) },
      ...(summary.executed ? [{ key: "executed", title: "Executed", value: (index) => program.executedBytes(index) / Math.max(1, program.sizes[index]) || Infinity,
        cell: (index) => executedText(program, index), startsDescending: true }] : []),
      { key: "old", title: program.new ? "Before" : "Address", value: (index) => program.old.starts[index], cell: (index) => program.address(program.old.starts[index]), isCode: true },
    ];
    if (program.new) {
      columns.push({ key: "new", title: "After", value: (index) => Number(program.newAddress(index) ?? Infinity), isCode: true, cell: (index) => program.newAddress(index) ?? "–" });
    }
    if (program.fragments) {
      columns.push({ key: "fragments", title: "Fragments", value: (index) => program.fragments.of(index).length || Infinity,
        cell: (index) => grouped(program.fragments.of(index).length || 0), startsDescending: true });
    }
    columns.push(
      { key: "scenarios", title: "Scenarios", value: (index) => program.scenariosOf[index], cell: (index) => (program.scenariosOf[index] ? String(program.scenariosOf[index]) : "–"), startsDescending: true },
      { key: "rank", title: "First touch", value: (index) => this.ranks[index] || Infinity, cell: (index) => this.touchText(index) });
    if (program.pinned.length > 0) {
      columns.push({ key: "pin", title: "Stays because", value: (index) => program.pinOf[index] || Infinity, cell: (index) => program.pinReason(index), isNote: true });
    }
    columns.find((column) => column.key === "size").startsDescending = true;
    return columns;
  }

  touchText(index) {
    const rank = this.ranks[index];
    if (!rank) return "–";
    const times = this.start.microseconds;
    return times ? timeText(times[rank - 1]) : `#${grouped(rank)}`;
  }

  makeHead() {
    this.head.replaceChildren(...this.columns.map((column, at) =>
      element("div", { role: "columnheader", class: `cell ${column.key}`, "aria-colindex": at + 1, "data-key": column.key },
        element("button", { type: "button", onclick: () => this.sortBy(column) }, column.title,
          element("span", { class: "arrow", "aria-hidden": "true" })))));
    this.box.setAttribute("aria-colcount", this.columns.length);
    this.box.parentElement.style.setProperty("--columns", this.columns.map((column) =>
      ({ name: "minmax(180px, 3fr)", size: "84px", executed: "92px", fragments: "92px", old: "118px", new: "118px", scenarios: "92px", rank: "116px", pin: "minmax(110px, 190px)" })[column.key]).join(" "));
  }

  sortBy(column) {
    const isSame = this.sort.column === column.key;
    this.sort = { column: column.key, isDescending: isSame ? !this.sort.isDescending : Boolean(column.startsDescending) };
    this.refresh();
  }

  /** Shows another scenario. */
  update(start) {
    this.start = start;
    this.ranks = start.ranks(this.program.count);
    this.refresh();
  }

  /** Lists the functions of one page of a map. */
  showPage(title, functions) {
    this.page = { title, functions: new Set(functions) };
    this.query = byId("function-search").value = "";
    this.refresh();
  }

  chosenRows() {
    const { program } = this;
    let isFound = null;
    if (this.query) {
      isFound = new Uint8Array(program.count);
      const pattern = new RegExp(this.query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
      program.names.search(pattern, (index) => { isFound[index] = 1; });
      program.rawNames?.search(pattern, (index) => { isFound[index] = 1; });
      if (/^(function@)?0x[0-9a-f]+$/i.test(this.query)) this.findAddress(isFound);
    }
    const rows = new Uint32Array(program.count);
    let count = 0;
    for (let index = 0; index < program.count; index++) {
      if (isFound && !isFound[index]) continue;
      if (this.filter === "run" && !this.ranks[index]) continue;
      if (this.filter === "pinned" && !program.pinOf[index]) continue;
      if (this.page && !this.page.functions.has(index)) continue;
      rows[count++] = index;
    }
    return rows.slice(0, count);
  }

  /** Marks the function at the address given as the query. */
  findAddress(isFound) {
    const distance = Number(BigInt(this.query.replace(/^function@/i, "")) - this.program.origin);
    for (const layout of [this.program.old, this.program.new]) {
      if (!layout || !Number.isSafeInteger(distance)) continue;
      layout.between(distance, distance + 1).forEach((index) => { isFound[index] = 1; });
    }
  }

  async refresh() {
    if (!this.start) return;
    const turn = ++this.turn;
    this.box.setAttribute("aria-busy", "true");
    const rows = this.chosenRows();
    const sorted = await this.sorted(rows, () => turn === this.turn);
    if (turn !== this.turn || !sorted) return;
    this.rows = sorted;
    this.current = -1;
    this.box.removeAttribute("aria-activedescendant");
    this.box.removeAttribute("aria-busy");
    this.box.setAttribute("aria-rowcount", this.rows.length + 1);
    this.height = Math.min(TALLEST, this.rows.length * ROW);
    this.spacer.style.height = `${this.height}px`;
    this.box.scrollTop = 0;
    for (const header of this.head.children) {
      const isSorted = header.dataset.key === this.sort.column;
      header.setAttribute("aria-sort", isSorted ? (this.sort.isDescending ? "descending" : "ascending") : "none");
    }
    const chip = byId("function-page");
    chip.hidden = !this.page;
    if (this.page) chip.replaceChildren(this.page.title, element("span", { "aria-hidden": "true" }, " ×"));
    this.status.textContent = !this.query && !this.page && this.filter === "all"
      ? plural(this.program.count, "function")
      : `${grouped(this.rows.length)} of ${plural(this.program.count, "function")}`;
    this.top = 0;
    this.draw();
  }

  async sorted(rows, isWanted) {
    const column = this.columns.find((candidate) => candidate.key === this.sort.column);
    const sign = this.sort.isDescending ? -1 : 1;
    if (column.isText) {
      const { names } = this.program;
      const cut = new Array(this.program.count);
      // Functions without a name come last.
      const name = (index) => (cut[index] ??= names.at(index) || "\uffff");
      return sortSlowly(rows, (one, other) => {
        const [a, b] = [name(one), name(other)];
        return a === b ? one - other : sign * (a < b ? -1 : 1);
      }, isWanted);
    }
    const keys = new Float64Array(this.program.count);
    for (const index of rows) {
      const value = column.value(index);
      // Functions without a value come last in either direction.
      keys[index] = value === Infinity ? Infinity : sign * value;
    }
    return rows.sort((one, other) => (keys[one] === keys[other] ? one - other : keys[one] - keys[other]));
  }

  get visible() {
    return Math.max(1, Math.floor((this.box.clientHeight - ROW - 4) / ROW));
  }

  scrolled() {
    const seen = this.box.clientHeight - ROW;
    const room = this.height - seen;
    if (this.height < TALLEST) this.top = this.box.scrollTop / ROW;
    else this.top = (this.box.scrollTop / Math.max(1, room)) * (this.rows.length - this.visible);
    tooltip.hide();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (!this.rows) return;
    const first = Math.max(0, Math.min(Math.floor(this.top), this.rows.length - 1) - 4);
    const count = this.visible + 12;
    const made = [];
    for (let row = first; row < Math.min(this.rows.length, first + count); row++) made.push(this.makeRow(row));
    this.body.replaceChildren(...made);
    // Rows are at the scroll position, shifted by the part of a row that is scrolled out of sight.
    this.body.style.transform = `translateY(${this.box.scrollTop - (this.top - first) * ROW}px)`;
    byId("function-none").hidden = this.rows.length > 0;
  }

  makeRow(row) {
    const index = this.rows[row];
    const runs = this.ranks[index] > 0;
    const made = element("div", {
      role: "row", "aria-rowindex": row + 2, "data-row": row, id: `function-row-${row}`,
      class: `row${runs ? "" : " idle"}${row === this.current ? " current" : ""}`,
      "aria-selected": row === this.current ? "true" : undefined,
    }, ...this.columns.map((column, at) => {
      const cell = element("div", { role: "gridcell", class: `cell ${column.key}`, "aria-colindex": at + 1 });
      if (column.key === "rank" && runs) {
        const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
        swatch.style.background = colourAt((this.ranks[index] - 1) / Math.max(1, this.start.order.length));
        cell.append(swatch);
      }
      cell.append(column.cell(index));
      return cell;
    }));
    return made;
  }

  pointed(event) {
    const found = event.target.closest("[data-row]");
    if (!found) return tooltip.hide();
    return this.tell(this.rows[Number(found.dataset.row)], event.clientX, event.clientY);
  }

  tell(index, x, y) {
    const { program } = this;
    tooltip.show(`function/${index}/${state.scenario}`, x, y, () => {
      const rank = this.ranks[index];
      const raw = program.rawName(index);
      const runs = program.scenarios.flatMap((start, number) =>
        (start.ranks(program.count)[index] ? [summary.scenarios[number].name] : []));
      return [
        element("div", { class: "tip-title name" }, program.name(index)),
        raw ? element("div", { class: "raw" }, raw) : "",
        element("div", {}, `${grouped(program.sizes[index])} bytes at ${program.address(program.old.starts[index])}` +
          (program.new ? (program.newAddress(index) ? `, after at ${program.newAddress(index)}` : ", not in the other build") : "")),
        ...partsOf(program, index),
        element("div", {}, rank ? `runs as function ${grouped(rank)} of ${grouped(this.start.order.length)}` : "does not run here"),
        runs.length ? element("div", { class: "faint" }, `in ${runs.slice(0, 6).join(", ")}${runs.length > 6 ? ` and ${runs.length - 6} more` : ""}`) : "",
        program.pinOf[index]
          ? element("div", {}, `stays: ${program.pinReason(index)} (${program.address(program.pinEvidence.get(index))})`) : "",
      ];
    });
  }

  key(event) {
    if (event.target !== this.box) return;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: this.visible - 1, PageUp: 1 - this.visible };
    const last = this.rows.length - 1;
    if (event.key in steps) this.goTo(Math.min(last, Math.max(0, this.current + steps[event.key])));
    else if (event.key === "Home") this.goTo(0);
    else if (event.key === "End") this.goTo(last);
    else return;
    event.preventDefault();
  }

  goTo(row) {
    if (row < 0 || row >= this.rows.length) return;
    this.current = row;
    const visible = this.visible;
    if (row < this.top || row > this.top + visible - 1) {
      this.top = Math.max(0, Math.min(this.rows.length - visible, row < this.top ? row : row - visible + 1));
      const seen = this.box.clientHeight - ROW;
      const share = this.top / Math.max(1, this.rows.length - visible);
      this.box.scrollTop = this.height < TALLEST ? this.top * ROW : share * (this.height - seen);
    }
    this.draw();
    this.box.setAttribute("aria-activedescendant", `function-row-${row}`);
    actions.related([this.rows[row]]);
  }
}

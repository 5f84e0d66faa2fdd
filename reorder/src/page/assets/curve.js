// Faults over the course of a run: one line for each layout, and the bound that no layout can beat.

const SVG = "http://www.w3.org/2000/svg";

function vector(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Round numbers from 0 to at least `most`, at least `least` apart. */
function ticks(most, wanted, least = 0) {
  if (!(most > 0)) return [0, 1];
  const rough = Math.max(most / wanted, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let at = 0; at < most + step; at += step) found.push(at);
  return found;
}

class FaultCurves {
  constructor(program, box) {
    this.program = program;
    this.box = box;
    this.at = -1;
    new ResizeObserver(() => this.draw()).observe(box);
    box.addEventListener("pointermove", (event) => this.pointed(event));
    box.addEventListener("pointerleave", () => this.leave());
    box.addEventListener("blur", () => this.leave());
    box.addEventListener("keydown", (event) => this.key(event));
  }

  update(start, curves, axis) {
    this.start = start;
    this.curves = curves;
    this.axis = axis;
    this.at = -1;
    this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    this.box.hidden = !this.curves;
    if (!this.curves || width === 0) return;
    const { old, new: after, bound } = this.curves;
    const points = this.program.points;
    const most = Math.max(old[points], after.length ? after[points] : 0, 1);
    const isTime = this.axis === "time";
    const upper = ticks(most, 5, 1);
    const top = upper.findLast((tick) => tick <= most * 1.02) >= most ? most : most * 1.04;
    const margin = { left: 58, right: 118, top: 14, bottom: 44 };
    this.plot = { left: margin.left, width: Math.max(80, width - margin.left - margin.right), top: margin.top, height: height - margin.top - margin.bottom };
    const { plot } = this;
    this.x = (point) => plot.left + (point / points) * plot.width;
    this.y = (faults) => plot.top + plot.height * (1 - faults / top);
    const line = (curve) => Array.from(curve, (faults, point) => `${point ? "L" : "M"}${this.x(point).toFixed(1)} ${this.y(faults).toFixed(1)}`).join("");
    const root = vector("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const tick of upper.filter((value) => value <= top)) {
      root.append(
        vector("line", { class: tick === 0 ? "axis" : "grid", x1: plot.left, x2: plot.left + plot.width, y1: this.y(tick), y2: this.y(tick) }),
        vector("text", { class: "tick", x: plot.left - 10, y: this.y(tick) + 4, "text-anchor": "end" }, grouped(tick)));
    }
    const end = isTime ? Math.max(this.start.end, 1) : 100;
    const room = Math.max(3, Math.floor(plot.width / 95));
    for (const tick of ticks(isTime ? end / 1000 : end, room).filter((value) => value <= (isTime ? end / 1000 : end) * 1.0001)) {
      const x = this.x((tick / (isTime ? end / 1000 : end)) * points);
      root.append(vector("text", { class: "tick", x, y: plot.top + plot.height + 19, "text-anchor": "middle" },
        isTime ? `${grouped(tick) === "0" && tick > 0 ? tick.toPrecision(1) : Number.isInteger(tick) ? grouped(tick) : Number(tick.toPrecision(3))}` : `${tick} %`));
    }
    root.append(vector("text", { class: "axis-title", x: plot.left + plot.width / 2, y: height - 6, "text-anchor": "middle" },
      isTime ? "milliseconds since the program started, as recorded" : "share of the functions of the run that have been executed"));
    if (after.length) {
      const back = Array.from(after, (faults, point) => [point, faults]).reverse()
        .map(([point, faults]) => `L${this.x(point).toFixed(1)} ${this.y(faults).toFixed(1)}`).join("");
      root.append(vector("path", { class: "saved", d: `${line(old)}${back}Z` }));
    }
    root.append(vector("path", { class: "curve bound", d: line(bound) }), vector("path", { class: "curve old", d: line(old) }));
    if (after.length) root.append(vector("path", { class: "curve new", d: line(after) }));
    this.cross = vector("g", { class: "cross" });
    root.append(...this.labels(), this.cross);
    this.box.replaceChildren(root);
    if (this.at >= 0) this.drawCross();
  }

  /** Names at the ends of the lines, moved apart where they would overlap. */
  labels() {
    const { old, new: after, bound } = this.curves;
    const points = this.program.points;
    const ends = [["old", after.length ? "before" : "faults", old[points]], ["bound", "bound", bound[points]]];
    if (after.length) ends.push(["new", "after", after[points]]);
    const placed = ends.map(([kind, text, faults]) => ({ kind, text, faults, y: this.y(faults) + 4 }))
      .sort((one, other) => one.y - other.y || other.faults - one.faults);
    for (let at = 1; at < placed.length; at++) placed[at].y = Math.max(placed[at].y, placed[at - 1].y + 18);
    const lowest = this.plot.top + this.plot.height + 4;
    for (let at = placed.length - 1, below = lowest + 18; at >= 0; below = placed[at].y, at--) placed[at].y = Math.min(placed[at].y, below - 18);
    return placed.map(({ kind, text, faults, y }) =>
      vector("text", { class: `end ${kind}`, x: this.plot.left + this.plot.width + 10, y },
        vector("tspan", { class: "figure" }, grouped(faults)), ` ${text}`));
  }

  pointed(event) {
    const bounds = this.box.getBoundingClientRect();
    const share = (event.clientX - bounds.left - this.plot.left) / this.plot.width;
    if (share < -0.02 || share > 1.02) return this.leave();
    this.at = Math.round(Math.min(1, Math.max(0, share)) * this.program.points);
    this.drawCross();
    return this.tell(event.clientX, event.clientY);
  }

  key(event) {
    const points = this.program.points;
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageUp: 20, PageDown: -20, Home: -points, End: points };
    if (event.key === "Escape") return this.leave();
    if (!(event.key in steps)) return undefined;
    event.preventDefault();
    this.at = Math.min(points, Math.max(0, Math.max(0, this.at) + steps[event.key]));
    this.drawCross();
    const bounds = this.box.getBoundingClientRect();
    this.tell(bounds.left + this.x(this.at), bounds.top + this.plot.top + 20);
    return announce(this.values().map(([name, value]) => `${name} ${value}`).join(", "));
  }

  leave() {
    this.at = -1;
    this.cross?.replaceChildren();
    tooltip.hide();
  }

  values() {
    const { old, new: after, bound } = this.curves;
    const share = this.at / this.program.points;
    const where = this.axis === "time" ? ["time", timeText(this.start.end * share)] : ["functions run", shareText(share)];
    const rows = [where, [after.length ? "before" : "faults", grouped(old[this.at])]];
    if (after.length) rows.push(["after", grouped(after[this.at])]);
    rows.push(["bound", grouped(bound[this.at])]);
    return rows;
  }

  tell(x, y) {
    tooltip.show(`curve/${this.at}/${this.axis}/${state.scenario}/${state.model}`, x, y, () => [
      element("table", { class: "tip-table" }, element("tbody", {}, ...this.values().map(([name, value]) =>
        element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value))))),
    ]);
  }

  drawCross() {
    const { old, new: after, bound } = this.curves;
    const x = this.x(this.at);
    const dots = [["old", old], ["bound", bound], ["new", after]].filter(([, curve]) => curve.length);
    this.cross.replaceChildren(
      vector("line", { class: "hair", x1: x, x2: x, y1: this.plot.top, y2: this.plot.top + this.plot.height }),
      ...dots.map(([kind, curve]) => vector("circle", { class: `dot ${kind}`, cx: x, cy: this.y(curve[this.at]), r: 4 })));
  }
}

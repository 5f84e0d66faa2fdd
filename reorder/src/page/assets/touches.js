// Data of the page maps: when each page is first touched, and which part of the text is shown.

/** When each page of a layout is first touched, and by how many scenarios. */
class Touches {
  constructor(program, layout, pages, start) {
    this.first = new Uint32Array(pages.count); // rank plus one; 0 means never
    this.scenarios = new Uint32Array(pages.count);
    this.touched = 0;
    this.length = Math.max(1, start.order.length);
    this.most = 0;
    start.order.forEach((_, rank) => start.each(layout, rank, (from, to) => pages.visit(from, to, (page) => {
      if (this.first[page] === 0) {
        this.first[page] = rank + 1;
        this.touched += 1;
      }
    })));
    const lastSeen = new Uint32Array(pages.count);
    program.scenarios.forEach((scenario, number) => {
      scenario.order.forEach((_, rank) => scenario.each(layout, rank, (from, to) => pages.visit(from, to, (page) => {
        if (lastSeen[page] !== number + 1) {
          lastSeen[page] = number + 1;
          this.scenarios[page] += 1;
        }
      })));
    });
    for (const count of this.scenarios) this.most = Math.max(this.most, count);
  }

  /** Position of a page on the scale, from 0 to 1; -1 if it is not touched. */
  late(page, by, scenarioCount) {
    if (this.first[page] === 0) return -1;
    if (by === "first") return (this.first[page] - 1) / this.length;
    return scenarioCount < 2 ? 0 : 1 - (Math.max(1, this.scenarios[page]) - 1) / (scenarioCount - 1);
  }
}

/** The part of the text that the maps show: enlarged `zoom` times, with its corner at (x, y) of the whole. */
class MapView {
  constructor() {
    this.maps = [];
    this.reset();
  }

  reset() {
    this.zoom = 1;
    this.x = 0;
    this.y = 0;
  }

  redraw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.maps.forEach((map) => map.draw()));
  }
}

// What the page maps draw: when each page is touched, and what part of the text is seen.

/** When the pages of a layout are touched first, and by how many scenarios. */
class Touches {
  constructor(program, layout, pages, start) {
    this.first = new Uint32Array(pages.count); // place in the order plus one; 0 is never
    this.scenarios = new Uint32Array(pages.count);
    this.touched = 0;
    this.length = Math.max(1, start.order.length);
    this.most = 0;
    start.order.forEach((index, rank) => {
      const from = layout.starts[index];
      pages.visit(from, from + layout.sizes[index], (page) => {
        if (this.first[page] === 0) {
          this.first[page] = rank + 1;
          this.touched += 1;
        }
      });
    });
    const lastSeen = new Uint32Array(pages.count);
    program.scenarios.forEach((scenario, number) => {
      for (const index of scenario.order) {
        const from = layout.starts[index];
        pages.visit(from, from + layout.sizes[index], (page) => {
          if (lastSeen[page] !== number + 1) {
            lastSeen[page] = number + 1;
            this.scenarios[page] += 1;
          }
        });
      }
    });
    for (const count of this.scenarios) this.most = Math.max(this.most, count);
  }

  /** Where on the scale a page is, from 0 to 1; -1 where it is not touched. */
  late(page, by, scenarioCount) {
    if (this.first[page] === 0) return -1;
    if (by === "first") return (this.first[page] - 1) / this.length;
    return scenarioCount < 2 ? 0 : 1 - (Math.max(1, this.scenarios[page]) - 1) / (scenarioCount - 1);
  }
}

/** What part of the text the maps show: `zoom` times enlarged, its corner at (x, y) of the whole. */
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

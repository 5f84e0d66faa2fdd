// The data of the page: figures as they are, columns unpacked into typed arrays.

/** One for each image of a set. */
const summaries = JSON.parse(document.getElementById("summary").textContent);

/** The choices that stand in the address, after #. */
function addressed() {
  const text = location.hash.slice(1);
  return new URLSearchParams(text.includes("=") ? text : "");
}

const shownImage = Math.max(0, summaries.findIndex((one) => fileName(one.image) === addressed().get("image")));
const summary = summaries[shownImage];

/** The text of a packed part of the image that is shown. */
async function unpack(part) {
  const text = document.getElementById(`${part}-${shownImage}`).textContent.trim();
  let bytes;
  if (Uint8Array.fromBase64) {
    bytes = Uint8Array.fromBase64(text);
  } else {
    const binary = atob(text);
    bytes = new Uint8Array(binary.length);
    for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

/** Running sums of differences. */
function accumulate(differences, Kind = Float64Array) {
  const sums = new Kind(differences.length);
  let sum = 0;
  for (let index = 0; index < sums.length; index++) sums[index] = sum += differences[index];
  return sums;
}

/** Lines of one text, extracted on demand. */
class Lines {
  constructor(text, count) {
    this.text = text;
    this.offsets = new Uint32Array(count + 1);
    for (let line = 0, at = 0; line < count; line++) {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end + 1;
      this.offsets[line + 1] = at;
    }
  }

  at(line) {
    return this.text.slice(this.offsets[line], Math.max(this.offsets[line], this.offsets[line + 1] - 1));
  }

  /** Calls `found` with each line that contains `pattern`, a global expression. */
  search(pattern, found) {
    const count = this.offsets.length - 1;
    let line = 0;
    pattern.lastIndex = 0;
    for (let match; line < count && (match = pattern.exec(this.text)); ) {
      line = this.lineAt(match.index, line);
      found(line);
      line += 1;
      pattern.lastIndex = this.offsets[line];
    }
  }

  lineAt(offset, from) {
    let low = from;
    let high = this.offsets.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** Copies of parts of functions, by function and place in it. */
class Fragments {
  constructor(columns) {
    this.functions = accumulate(columns.functions, Uint32Array);
    this.offsets = columns.offsets;
    this.sizes = columns.sizes;
    this.starts = accumulate(columns.copies);
    this.copySizes = columns.copy_sizes;
    this.count = this.functions.length;
    this.order = Uint32Array.from(this.functions.keys()).sort((one, other) => this.starts[one] - this.starts[other]);
    this.firsts = new Map();
    for (let at = this.count - 1; at >= 0; at--) this.firsts.set(this.functions[at], at);
  }

  /** Indices of the fragments of a function, in the order of their offsets. */
  of(index) {
    const found = [];
    for (let at = this.firsts.get(index) ?? this.count; at < this.count && this.functions[at] === index; at++) found.push(at);
    return found;
  }

  end(at) {
    return this.starts[at] + this.copySizes[at];
  }

  /** Calls `visit` with the function of each copy that has bytes in [start, end). */
  between(start, end, visit) {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end(this.order[middle]) <= start) low = middle + 1;
      else high = middle;
    }
    for (; low < this.count && this.starts[this.order[low]] < end; low++) visit(this.functions[this.order[low]]);
  }
}

/** Where functions of a scenario run in one image: several places each. */
class Places {
  constructor(columns) {
    this.starts = accumulate(columns.starts);
    this.sizes = columns.sizes;
    this.firsts = new Uint32Array(columns.counts.length + 1);
    columns.counts.forEach((count, at) => { this.firsts[at + 1] = this.firsts[at] + count; });
  }

  each(rank, visit) {
    for (let at = this.firsts[rank]; at < this.firsts[rank + 1]; at++) visit(this.starts[at], this.starts[at] + this.sizes[at]);
  }
}

/** Where the functions are in one of the two images, `side`; `fragments` are the copies that it has. */
class Layout {
  constructor(side, starts, sizes, text, fragments = null) {
    this.side = side;
    this.fragments = fragments;
    this.starts = starts;
    this.sizes = sizes;
    this.text = text;
    let isSorted = true;
    for (let index = 1; index < starts.length && isSorted; index++) isSorted = starts[index - 1] <= starts[index];
    this.order = Uint32Array.from(starts.keys());
    if (!isSorted) this.order.sort((one, other) => starts[one] - starts[other] || one - other);
    // The largest end among the functions up to each one in order: functions may overlap.
    this.reach = new Float64Array(starts.length);
    let reach = -Infinity;
    for (let at = 0; at < starts.length; at++) {
      const index = this.order[at];
      reach = Math.max(reach, starts[index] + sizes[index]);
      this.reach[at] = reach;
    }
  }

  /** Functions that have bytes in [start, end), by address. */
  between(start, end) {
    let low = 0;
    let high = this.order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[this.order[middle]] < end) low = middle + 1;
      else high = middle;
    }
    const found = [];
    for (let at = low - 1; at >= 0 && this.reach[at] > start; at--) {
      const index = this.order[at];
      if (this.starts[index] + this.sizes[index] > start) found.push(index);
    }
    found.reverse();
    if (!this.fragments) return found;
    this.fragments.between(start, end, (index) => found.push(index));
    return [...new Set(found)];
  }

  /** Calls `visit` with the start and end of each place of a function, whether it runs or not. */
  each(index, visit) {
    visit(this.starts[index], this.starts[index] + this.sizes[index]);
    if (this.fragments) this.fragments.of(index).forEach((at) => visit(this.fragments.starts[at], this.fragments.end(at)));
  }
}

/** The pages of the text, numbered, all of one size. */
class Pages {
  constructor(text, size) {
    this.size = size;
    this.ranges = [];
    this.count = 0;
    let previousEnd = -Infinity;
    for (const [start, length] of text) {
      const first = Math.max(Math.floor(start / size), previousEnd);
      const end = Math.ceil((start + length) / size);
      if (end <= first) continue;
      this.ranges.push({ first, end, number: this.count });
      this.count += end - first;
      previousEnd = end;
    }
  }

  /** Distance of a page's first byte from the origin. */
  start(number) {
    const range = this.ranges.findLast((candidate) => candidate.number <= number);
    return (range.first + number - range.number) * this.size;
  }

  /** Calls `visit` with the number of each page that [start, end) lies on. */
  visit(start, end, visit) {
    const first = Math.floor(start / this.size);
    const last = Math.floor((end - 1) / this.size);
    for (const range of this.ranges) {
      const from = Math.max(first, range.first);
      const to = Math.min(last, range.end - 1);
      for (let page = from; page <= to; page++) visit(range.number + page - range.first);
    }
  }
}

/** The recorded runs of one scenario, or of all. */
class Start {
  constructor(columns) {
    this.isDrawn = columns.is_drawn;
    this.order = accumulate(columns.order, Uint32Array);
    this.microseconds = columns.microseconds.length > 0 ? accumulate(columns.microseconds) : null;
    this.end = columns.end_microseconds;
    this.hasTimes = this.end > 0;
    this.places = columns.parts ? { old: new Places(columns.parts.old), new: new Places(columns.parts.new) } : null;
    this.models = columns.models.map((model) => ({
      time: curvesOf(model.by_time),
      functions: curvesOf(model.by_functions),
    }));
  }

  /** Calls `visit` with the start and end of each place where the function of this rank runs. */
  each(layout, rank, visit) {
    if (this.places) return this.places[layout.side].each(rank, visit);
    const index = this.order[rank];
    return visit(layout.starts[index], layout.starts[index] + layout.sizes[index]);
  }

  /** For each function its rank plus one, or 0 if it does not run. */
  ranks(count) {
    if (!this.cachedRanks) {
      this.cachedRanks = new Uint32Array(count);
      this.order.forEach((index, rank) => { this.cachedRanks[index] = rank + 1; });
    }
    return this.cachedRanks;
  }
}

function curvesOf(columns) {
  return { old: accumulate(columns.old), new: accumulate(columns.new), bound: accumulate(columns.bound) };
}

/** All data of the page. */
class Program {
  constructor(columns, names) {
    const count = columns.sizes.length;
    this.count = count;
    this.origin = BigInt(columns.origin);
    this.points = columns.points;
    this.text = columns.text;
    this.sizes = Float64Array.from(columns.sizes);
    this.old = new Layout("old", accumulate(columns.starts), this.sizes, columns.text);
    this.fragments = columns.fragments ? new Fragments(columns.fragments) : null;
    this.new = summary.new_image === undefined ? null : this.unpackNew(columns);
    this.scenariosOf = Uint32Array.from(columns.scenarios_of);
    this.all = new Start(columns.all);
    this.scenarios = columns.scenarios.map((scenario) => new Start(scenario));
    this.pinTitles = columns.pins.titles;
    this.pinned = accumulate(columns.pins.functions, Uint32Array);
    this.pinOf = new Uint8Array(count);
    this.pinEvidence = new Map();
    this.pinned.forEach((index, at) => {
      this.pinOf[index] = columns.pins.reasons[at] + 1;
      this.pinEvidence.set(index, columns.pins.evidence[at]);
    });
    this.names = new Lines(names, count);
    this.rawNames = null;
  }

  /** Another build has sizes and ranges of code of its own. */
  unpackNew(columns) {
    const isBuild = summary.other_build !== undefined;
    const sizes = isBuild ? Float64Array.from(columns.new_sizes) : this.sizes;
    const starts = new Float64Array(columns.new_starts.length);
    let end = 0;
    for (let index = 0; index < starts.length; index++) {
      starts[index] = end + columns.new_starts[index];
      end = starts[index] + sizes[index];
    }
    return new Layout("new", starts, sizes, columns.new_text.length > 0 ? columns.new_text : this.text, this.fragments);
  }

  /** The parts of a function that run in any scenario, as [offset, size]; empty where no basic blocks are known. */
  executedParts(index) {
    const rank = this.all.ranks(this.count)[index];
    const parts = [];
    if (summary.executed && rank) {
      this.all.each(this.old, rank - 1, (start, end) => parts.push([start - this.old.starts[index], end - start]));
    }
    return parts;
  }

  /** How many bytes of a function run. */
  executedBytes(index) {
    return this.executedParts(index).reduce((sum, [, size]) => sum + size, 0);
  }

  /** The address in the second image, if the function is in it; of copied functions that of the first fragment. */
  newAddress(index) {
    const [copy] = this.fragments ? this.fragments.of(index) : [];
    if (copy !== undefined) return this.address(this.fragments.starts[copy]);
    return this.sizes[index] > 0 && this.new.sizes[index] === 0 ? null : this.address(this.new.starts[index]);
  }

  start(scenario) {
    return scenario < 0 ? this.all : this.scenarios[scenario];
  }

  name(index) {
    return this.names.at(index) || `function@${this.address(this.old.starts[index])}`;
  }

  /** The name of the function in the image, if it differs. */
  rawName(index) {
    return this.rawNames ? this.rawNames.at(index).replaceAll("\t", ", ") : "";
  }

  pinReason(index) {
    return this.pinOf[index] ? this.pinTitles[this.pinOf[index] - 1] : "";
  }

  /** An address from its distance to the origin. */
  address(distance) {
    return `0x${(this.origin + BigInt(distance)).toString(16)}`;
  }
}

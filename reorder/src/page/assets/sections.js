// Texts, figures and small tables of the page.

/** The figures of the chosen scenario, or of all, under the chosen model. */
function chosenFaults() {
  const owner = state.scenario < 0 ? summary.models : summary.scenarios[state.scenario].models;
  return owner[state.model];
}

const isCompared = summary.new_image !== undefined;

function fileName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

function showHeading() {
  const { faults, new_faults: after, lower_bound_faults: bound } = chosenFaults();
  const model = summary.models[state.model];
  const parts = isCompared
    ? [element("span", { class: "before" }, faultsText(faults)), element("span", { class: "to", "aria-hidden": "true" }, " → "),
      element("span", { class: "visually-hidden" }, " before, after "), element("span", { class: "after" }, faultsText(after))]
    : [element("span", { class: "after" }, faultsText(faults))];
  byId("headline").replaceChildren(...parts, element("span", { class: "unit" }, (after ?? faults) === 1 ? " page fault" : " page faults"));
  const where = state.scenario < 0
    ? summary.scenarios.length === 1 ? `in the scenario “${summary.scenarios[0].name}”` : `in the sum of ${summary.scenarios.length} scenarios`
    : `in the scenario “${summary.scenarios[state.scenario].name}”`;
  const change = isCompared && faults > 0 ? element("strong", { class: "change" }, `${changeText(faults, after)} `) : "";
  byId("subline").replaceChildren(change, `${where}, ${model.title} (${model.model}). `,
    element("span", { class: "bound-note" }, `No layout has fewer than ${faultsText(bound)}.`));
  showScale(faults, after, bound);
}

/** Before, after and bound as bars on one scale. */
function showScale(faults, after, bound) {
  const most = Math.max(faults, after ?? 0, 1);
  const bar = (kind, label, value) => {
    const fill = element("span", { class: `fill ${kind}` });
    fill.style.width = `${(value / most) * 100}%`;
    return [element("span", { class: "bar-label" }, label), element("span", { class: "track" }, fill),
      element("span", { class: "bar-value" }, faultsText(value))];
  };
  byId("bars").replaceChildren(...bar("old", isCompared ? "before" : "now", faults),
    ...(isCompared ? bar("new", "after", after) : []), ...bar("bound", "bound", bound));
}

function showFacts() {
  const found = summary.coverage.found.reduce((sum, entry) => sum + entry.events, 0);
  const share = (part, whole) => (whole > 0 ? shareText(part / whole) : "–");
  const facts = [
    [bytesText(summary.text_bytes), "of code"],
    [grouped(summary.functions), "functions"],
    [grouped(summary.functions_run), `run at startup, ${share(summary.functions_run, summary.functions)}`],
    ...(summary.executed ? [[share(summary.executed.bytes, summary.executed.function_bytes), "of their code is executed"]] : []),
    ...(isCompared ? [[grouped(summary.functions_moved), "have moved"]] : []),
    ...(summary.copies ? [[grouped(summary.copies.fragments),
      `fragments, copied from ${plural(summary.copies.functions, "function")}, ${bytesText(summary.copies.bytes)}`]] : []),
    ...(summary.other_build ? [[grouped(summary.other_build.missing), "that run are not in the other build"]] : []),
    ...(summary.pins.unknown_because ? [] : [[grouped(summary.pins.functions), "cannot be moved"]]),
    ...(summary.sizes ? [[bytesText(summary.sizes.file.new_compressed_bytes ?? summary.sizes.file.compressed_bytes), `compressed by ${summary.sizes.compressor}`]] : []),
    ...(summary.sizes?.delta_bytes !== undefined ? [[bytesText(summary.sizes.delta_bytes), "in a delta from the image to the new one"]] : []),
    [share(found, summary.coverage.events), `of ${grouped(summary.coverage.events)} traced events found`],
  ];
  byId("facts").replaceChildren(...facts.map(([figure, text]) =>
    element("div", { class: "fact" }, element("dd", {}, figure), element("dt", {}, text))));
  byId("images").replaceChildren(element("span", { class: "name" }, fileName(summary.image)),
    ...(isCompared ? [" and ", element("span", { class: "name" }, fileName(summary.new_image))] : []));
  byId("paths").textContent = isCompared ? `${summary.image} and ${summary.new_image}` : summary.image;
}

/** A table of plain cells; those in columns with `isFigure` are figures. */
function plainTable(columns, rows) {
  return element("table", {},
    element("thead", {}, element("tr", {}, ...columns.map((column) =>
      element("th", { scope: "col", class: column.isFigure ? "figure" : "" },
        column.isHidden ? element("span", { class: "visually-hidden" }, column.title) : column.title)))),
    element("tbody", {}, ...rows));
}

const figure = (...children) => element("td", { class: "figure" }, ...children);

function faultCells({ faults, new_faults: after, lower_bound_faults: bound }, most) {
  const track = element("span", { class: "range", "aria-hidden": "true" });
  const place = (kind, value) => {
    const mark = element("span", { class: `mark ${kind}` });
    mark.style.left = `${(value / Math.max(most, 1)) * 100}%`;
    return mark;
  };
  const span = element("span", { class: "span" });
  const [low, high] = [Math.min(after ?? bound, faults), Math.max(after ?? bound, faults)];
  span.style.left = `${(low / Math.max(most, 1)) * 100}%`;
  span.style.width = `${((high - low) / Math.max(most, 1)) * 100}%`;
  track.append(span, place("bound", bound), place("old", faults), ...(isCompared ? [place("new", after)] : []));
  return [
    figure(faultsText(faults)),
    ...(isCompared ? [figure(element("strong", {}, faultsText(after))), figure(changeText(faults, after))] : []),
    figure(faultsText(bound)),
    element("td", { class: "range-cell" }, track),
  ];
}

const faultColumns = [
  { title: isCompared ? "Before" : "Faults", isFigure: true },
  ...(isCompared ? [{ title: "After", isFigure: true }, { title: "Change", isFigure: true }] : []),
  { title: "Bound", isFigure: true },
  { title: isCompared ? "Bound, after, before" : "Bound, faults" },
];

function showModels() {
  const owner = state.scenario < 0 ? summary.models : summary.scenarios[state.scenario].models;
  const most = Math.max(...owner.map((faults) => Math.max(faults.faults, faults.new_faults ?? 0)));
  const rows = owner.map((faults, at) => {
    const model = summary.models[at];
    const choose = element("button", { type: "button", class: "link", "aria-pressed": String(at === state.model), onclick: () => actions.chooseModel(at) }, model.model);
    return element("tr", { class: at === state.model ? "chosen" : "" },
      element("th", { scope: "row" }, choose, element("span", { class: "note" }, model.title)), ...faultCells(faults, most));
  });
  byId("models").replaceChildren(plainTable([{ title: "Model of memory" }, ...faultColumns], rows));
}

/** The images of a set, of which one is shown. */
function showSet() {
  byId("set").hidden = summaries.length < 2;
  if (summaries.length < 2) return;
  const { model } = summary.models[state.model];
  const of = (one) => one.models.find((faults) => faults.model === model) ?? one.models[0];
  const most = Math.max(...summaries.map((one) => Math.max(of(one).faults, of(one).new_faults ?? 0)));
  const rows = summaries.map((one, at) => {
    const choose = element("button", { type: "button", class: "link", "aria-pressed": String(at === shownImage), title: one.image, onclick: () => actions.chooseImage(at) }, fileName(one.image));
    return element("tr", { class: at === shownImage ? "chosen" : "" }, element("th", { scope: "row" }, choose),
      figure(grouped(one.functions_run)), figure(one.functions_moved === undefined ? "–" : grouped(one.functions_moved)), ...faultCells(of(one), most));
  });
  const sum = (key) => summaries.reduce((total, one) => total + (of(one)[key] ?? of(one).faults), 0);
  const all = { faults: sum("faults"), new_faults: sum("new_faults"), lower_bound_faults: sum("lower_bound_faults") };
  rows.push(element("tr", { class: "total" }, element("th", { scope: "row" }, "All images"), figure(""), figure(""), ...faultCells(all, all.faults)));
  byId("set-images").replaceChildren(plainTable([
    { title: "Image" }, { title: "Functions run", isFigure: true }, { title: "Moved", isFigure: true }, ...faultColumns], rows));
}

/** What was measured of the processes; it is the same for all images of a set, and the program has it. */
const processes = summaries[0].processes ?? [];

/** The faults of one measured process, by kind and by file. */
function showProcess(process) {
  const hasMajors = process.total.old.major !== undefined;
  const isPages = process.source === "page_table";
  const sides = process.total.new === undefined ? [["old", ""]] : [["old", ", before"], ["new", ", after"]];
  const counts = [...(hasMajors ? [["major", "Waited for the disk"]] : []), ["all", isPages ? "Pages" : "All faults"]];
  const columns = counts.flatMap(([, title]) => [...sides.map(([, side]) => ({ title: title + side, isFigure: true })),
    ...(sides.length > 1 ? [{ title: "Change", isFigure: true }] : [])]);
  const cells = (row) => counts.flatMap(([key]) => {
    const [old, after] = sides.map(([side]) => row[side][key] ?? 0);
    return [figure(grouped(old)), ...(after === undefined ? [] : [figure(element("strong", {}, grouped(after))), figure(changeText(old, after))])];
  });
  const line = (name, row, kind = "") => element("tr", { class: kind }, element("th", { scope: "row" }, name), ...cells(row));
  const total = line("All", process.total, "total");
  byId("process-kinds").replaceChildren(plainTable([{ title: "In" }, ...columns],
    [...process.kinds.map((row) => line(process.kind_titles[row.place], row)), total]));
  byId("process-files").replaceChildren(plainTable([{ title: "File" }, ...columns],
    process.files.map((row) => line(element("span", { class: "name", title: row.place }, fileName(row.place)), row))));
  const seen = {
    events: "counted by the kernel's events",
    user_events: "counted by the kernel's events, without those inside system calls",
    page_table: "in the page table at the end, including neighbours that faults brought in",
  }[process.source];
  byId("process-note").textContent = `${process.title}. Measured, not simulated: page ${isPages ? "entries" : "faults"} of the program, its ` +
    `libraries and everything else, ${seen}; medians.`;
}

function showProcesses() {
  byId("process").hidden = processes.length === 0;
  if (processes.length === 0) return;
  const choices = processes.map((process, at) => [String(at), process.title]);
  if (processes.length > 1) segments(byId("process-which"), "Which runs", choices, "0", (at) => showProcess(processes[at]));
  showProcess(processes[0]);
}

// Browsers need long to lay out a table of thousands of rows, and readers do not need them all.
const LISTED_SCENARIOS = 100;

function showScenarios() {
  const of = (scenario) => scenario.models[state.model];
  const most = summary.scenarios.reduce(
    (largest, scenario) => Math.max(largest, of(scenario).faults, of(scenario).new_faults ?? 0), 1);
  const isListed = (at) => state.isEveryScenarioListed || at < LISTED_SCENARIOS || at === state.scenario;
  const rows = summary.scenarios.map((scenario, at) => ({ scenario, at })).filter(({ at }) => isListed(at)).map(({ scenario, at }) => {
    const choose = element("button", { type: "button", class: "link", "aria-pressed": String(at === state.scenario), onclick: () => actions.chooseScenario(at) }, scenario.name);
    return element("tr", { class: at === state.scenario ? "chosen" : "" },
      element("th", { scope: "row" }, choose), figure(grouped(scenario.recordings)), figure(grouped(scenario.functions)),
      figure(bytesText(scenario.touched_bytes)), ...faultCells(of(scenario), most));
  });
  if (summary.scenarios.length > 1) {
    const sum = (value) => summary.scenarios.reduce((total, scenario) => total + value(scenario), 0);
    const all = summary.models[state.model];
    const choose = element("button", { type: "button", class: "link", "aria-pressed": String(state.scenario < 0), onclick: () => actions.chooseScenario(-1) }, "All scenarios");
    rows.push(element("tr", { class: `total${state.scenario < 0 ? " chosen" : ""}` }, element("th", { scope: "row" }, choose),
      figure(grouped(sum((scenario) => scenario.recordings))), figure(grouped(summary.functions_run)), figure(""),
      ...faultCells(all, Math.max(all.faults, all.new_faults ?? 0))));
  }
  byId("scenarios").replaceChildren(plainTable([
    { title: "Scenario" }, { title: "Recordings", isFigure: true }, { title: "Functions", isFigure: true },
    { title: "Their code", isFigure: true }, ...faultColumns], rows));
  if (summary.scenarios.length > LISTED_SCENARIOS && !state.isEveryScenarioListed) {
    byId("scenarios").append(element("button", { type: "button", class: "chip", id: "all-scenarios", onclick: () => {
      state.isEveryScenarioListed = true;
      showScenarios();
    } }, `List all ${grouped(summary.scenarios.length)} scenarios`));
  }
}

function showBiggest(program, which) {
  const shown = 15;
  const start = program.start(state.scenario);
  const ranks = start.ranks(program.count);
  const found = [];
  for (let index = 0; index < program.count; index++) {
    if (which === "run" && !ranks[index]) continue;
    const size = program.sizes[index];
    if (found.length === shown && size <= program.sizes[found[shown - 1]]) continue;
    let at = found.length;
    while (at > 0 && program.sizes[found[at - 1]] < size) at -= 1;
    found.splice(at, 0, index);
    found.length = Math.min(found.length, shown);
  }
  const most = found.length ? program.sizes[found[0]] : 1;
  const rows = found.map((index) => {
    const whole = `${(program.sizes[index] / most) * 100}%`;
    const fill = element("span", { class: "fill new" });
    fill.style.width = whole;
    const parts = executedBar(program, index);
    parts.style.width = whole;
    const name = element("th", { scope: "row", class: "name" }, program.name(index));
    return element("tr", { onpointermove: (event) => table.tell(index, event.clientX, event.clientY), onpointerleave: () => tooltip.hide() },
      name, figure(grouped(program.sizes[index])),
      element("td", { class: "range-cell", "aria-hidden": "true" }, summary.executed ? parts : element("span", { class: "track" }, fill)),
      ...(summary.executed ? [figure(executedText(program, index))] : []),
      figure(program.scenariosOf[index] ? `${program.scenariosOf[index]} of ${summary.scenarios.length}` : "–"),
      figure(ranks[index] ? table.touchText(index) : "–"));
  });
  byId("biggest").replaceChildren(rows.length === 0 ? element("p", { class: "faint" }, "No function runs.") : plainTable([
    { title: "Function" }, { title: "Bytes", isFigure: true }, { title: "Share of the biggest", isHidden: true },
    ...(summary.executed ? [{ title: "Executed", isFigure: true }] : []), { title: "Scenarios", isFigure: true }, { title: "First touch", isFigure: true }], rows));
}

function showPins(program) {
  const box = byId("pins");
  const { pins } = summary;
  if (pins.unknown_because) return box.replaceChildren(element("p", {}, pins.unknown_because));
  const kept = summary.functions_kept > 0
    ? element("p", { id: "kept" }, `${plural(summary.functions_kept, pins.functions ? "other function has" : "function has", pins.functions ? "other functions have" : "functions have")} ` +
      "the same address as before although they are not pinned: no free place was large enough, or the new order puts them there.")
    : "";
  if (pins.functions === 0) return box.replaceChildren(element("p", {}, "Nothing in the image pins a function."), kept);
  const shown = 50;
  const sizes = program.sizes;
  const ranks = program.all.ranks(program.count);
  const listed = Array.from(program.pinned)
    .sort((one, other) => Boolean(ranks[other]) - Boolean(ranks[one]) || sizes[other] - sizes[one] || one - other)
    .slice(0, shown);
  return box.replaceChildren(
    element("p", {}, `${plural(pins.functions, "function")} of ${bytesText(pins.bytes)} must stay where they are, ` +
      `${grouped(pins.functions_run)} of them run at start.`),
    kept,
    element("div", { class: "columns" },
      element("div", { class: "scroll" }, plainTable([{ title: "Reason" }, { title: "Functions", isFigure: true }, { title: "Bytes", isFigure: true }],
        pins.reasons.map((reason) => element("tr", {}, element("th", { scope: "row" }, reason.title), figure(grouped(reason.functions)), figure(grouped(reason.bytes)))))),
      element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Pinned functions" },
        plainTable([{ title: "Function" }, { title: "Bytes", isFigure: true }, { title: "Because" }, { title: "Shown by", isFigure: true }],
          listed.map((index) => element("tr", {},
            element("th", { scope: "row", class: "name", title: program.name(index) },
              ranks[index] ? element("span", { class: "badge first" }, "runs") : null, program.name(index)),
            figure(grouped(sizes[index])), element("td", {}, program.pinReason(index)),
            figure(element("code", {}, program.address(program.pinEvidence.get(index)))))))) ),
    pins.functions > shown
      ? element("p", { class: "faint" }, `Listed are those that matter most; all are in the function table, under “Pinned”.`) : "");
}

function showCoverage() {
  const { coverage } = summary;
  const found = coverage.found.reduce((sum, entry) => sum + entry.events, 0);
  const rows = [
    ...coverage.found.map((entry) => [`found by ${entry.by}`, entry.events]),
    ["ambiguous: several functions have the name", coverage.ambiguous],
    ["without address and name", coverage.unknown],
    ["not in this image", Math.max(0, coverage.events - found - coverage.ambiguous - coverage.unknown)],
  ].filter(([, events], at) => events > 0 || at < coverage.found.length);
  const share = (events) => (coverage.events > 0 ? shareText(events / coverage.events) : "–");
  const others = Object.entries(coverage.other_images);
  const missing = coverage.missing.map((entry) => element("tr", {},
    element("th", { scope: "row", class: "name", title: entry.name }, entry.name), figure(grouped(entry.events)),
    element("td", { class: "name", title: entry.likely }, entry.likely ?? "–")));
  const unlisted = coverage.missing_functions - coverage.missing.length;
  byId("coverage").replaceChildren(
    element("div", { class: "columns" },
      element("div", {},
        plainTable([{ title: "Events of the traces" }, { title: "Events", isFigure: true }, { title: "Share", isFigure: true }],
          rows.map(([title, events]) => element("tr", {}, element("th", { scope: "row" }, title), figure(grouped(events)), figure(share(events))))),
        others.length ? element("p", { class: "faint" }, `Left out, because they are of other images: ` +
          others.slice(0, 5).map(([image, traces]) => `${plural(traces, "trace")} of ${fileName(image)}`).join(", ") + (others.length > 5 ? ` and ${others.length - 5} more` : "") + ".") : ""),
      missing.length === 0
        ? element("p", {}, "Every function of the traces is in the image.")
        : element("div", {},
          element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Functions that were not found" },
            plainTable([{ title: "Not found" }, { title: "Events", isFigure: true }, { title: "Likely name now" }], missing)),
          unlisted > 0 ? element("p", { class: "faint" }, `and ${grouped(unlisted)} more`) : "")));
}

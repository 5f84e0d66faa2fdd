// The choices of the user, and the parts of the page that show them.

const state = { model: 0, scenario: -1, by: "first", axis: "functions", biggest: "run", isEveryScenarioListed: false };

/** Takes over what the address says; names that this page does not have change nothing. */
function takeAddress() {
  const wanted = addressed();
  const position = (names, name, other) => (names.includes(name) ? names.indexOf(name) : other);
  state.model = position(summary.models.map((model) => model.model), wanted.get("model"), state.model);
  state.scenario = position(summary.scenarios.map((scenario) => scenario.name), wanted.get("scenario"), state.scenario);
  if (wanted.get("scenario") === "" && summary.scenarios.length > 1) state.scenario = -1;
  if (["first", "scenarios"].includes(wanted.get("by"))) state.by = wanted.get("by");
}

/** Writes the choices into the address, so that a link shows what its sender saw. */
function putAddress() {
  const choices = new URLSearchParams();
  if (summaries.length > 1) choices.set("image", fileName(summary.image));
  choices.set("scenario", state.scenario < 0 ? "" : summary.scenarios[state.scenario].name);
  choices.set("model", summary.models[state.model].model);
  if (state.by !== "first") choices.set("by", state.by);
  history.replaceState(null, "", `#${choices}`);
}

const announce = settled(150, (text) => { byId("announcement").textContent = text; });

let program;
let table;
let curves;
let maps = [];
const view = new MapView();

const actions = {
  chooseModel(model) {
    state.model = model;
    byId("model").value = String(model);
    putAddress();
    update();
  },
  chooseScenario(scenario) {
    state.scenario = scenario;
    byId("scenario").value = String(scenario);
    putAddress();
    update();
  },
  /** Another image of the set has other data: the page opens anew. */
  chooseImage(image) {
    const choices = addressed();
    choices.set("image", fileName(summaries[image].image));
    history.replaceState(null, "", `#${choices}`);
    location.reload();
  },
  /** The pointer is on a page of one map: the other map shows where its functions are. */
  pointed(map, functions) {
    maps.filter((other) => other !== map).forEach((other) => other.relate(functions));
  },
  related(functions) {
    maps.forEach((map) => map.relate(functions));
  },
  chosen(map, page) {
    const functions = map.functionsOn(page);
    table.showPage(`${map.title}, page ${grouped(page)}`, functions);
    byId("map-note").replaceChildren(`${plural(functions.length, "function")} of page ${grouped(page)}: see `,
      element("a", { href: "#functions" }, "the function table"), ".");
  },
  zoomed(zoom) {
    byId("zoom-level").textContent = `${zoom < 10 ? zoom.toFixed(1) : Math.round(zoom)}×`;
    byId("zoom-out").disabled = byId("zoom-reset").disabled = zoom <= 1;
  },
};

function showLegend() {
  const isFirst = state.by === "first";
  const count = summary.scenarios.length;
  const steps = isFirst ? 24 : Math.min(count, 12);
  const cells = Array.from({ length: steps }, (_, step) => {
    const cell = element("span", {});
    cell.style.background = colourAt(isFirst ? step / (steps - 1) : steps < 2 ? 0 : 1 - step / (steps - 1));
    return cell;
  });
  const untouched = element("span", { class: "untouched" });
  untouched.style.background = palette().untouched;
  byId("legend").replaceChildren(untouched, element("span", { class: "legend-text gap" }, "not touched"),
    element("span", { class: "legend-text" }, isFirst ? "beginning" : "1 scenario"),
    element("span", { class: "ramp", "aria-hidden": "true" }, ...cells),
    element("span", { class: "legend-text" }, isFirst ? "end of the run" : `${count} scenarios`));
}

/** Updates all parts of the page. */
function update() {
  showHeading();
  showModels();
  showScenarios();
  showSet();
  if (!program) return;
  const start = program.start(state.scenario);
  const pageBytes = summary.models[state.model].page_bytes;
  const reach = summary.models[state.model].bytes_per_fault;
  byId("map-explained").textContent = `Each cell is ${bytesText(pageBytes)} of the text, in the order of addresses. The run touches the ` +
    `coloured ones${summary.copies ? ", in copies and in originals; the copies come after the text" : ""}; ${reach > pageBytes ? `one fault brings up to ${bytesText(reach)}` : "each of them costs it a fault"}.`;
  byId("counted").textContent = summary.executed
    ? "a run touches the pages of the code that it executes; a function whose basic blocks are not known touches all of its pages"
    : "a function that runs touches all of its pages";
  byId("bound-of").textContent = summary.executed ? "" : " of whole functions";
  byId("not-drawn").hidden = start.isDrawn;
  maps.forEach((map) => map.update(pagesOf(map.layout, pageBytes), start, state.by, program.scenarios.length));
  byId("map-union").textContent = unionText();
  // Without times there is one axis only. Curves exist for the first scenarios only.
  const axis = start.hasTimes ? state.axis : "functions";
  const drawn = start.models[state.model];
  curves.update(start, drawn ? drawn[axis] : null, axis);
  byId("curve-note").textContent = curveNote(start, axis);
  table.update(start);
  showBiggest(program, state.biggest);
  showLegend();
}

/** What the figure on top and the maps count, where these differ. */
function unionText() {
  const scenario = state.scenario < 0 ? null : summary.scenarios[state.scenario];
  const runs = scenario ? scenario.recordings : summary.scenarios.reduce((sum, one) => sum + one.recordings, 0);
  if (runs < 2) return "";
  const touched = maps.map((map) => grouped(map.touches.touched)).join(" → ");
  const { faults, new_faults: after } = chosenFaults();
  const figures = [faults, ...(isCompared ? [after] : [])].map(faultsText).join(" → ");
  return scenario
    ? `The map shows ${touched} pages, those that any of the ${plural(runs, "recording")} touches; ${figures} is the mean of their faults.`
    : `The map shows ${touched} pages, those that any scenario touches: a page that several touch is one cell. ${figures} is the sum over the ` +
      "scenarios, because each is a run of its own, with faults of its own.";
}

/** A note about what the curves omit. */
function curveNote(start, axis) {
  if (start.models.length === 0) return "There are too many scenarios to draw the curves of this one; its figures are complete.";
  if (axis !== state.axis) return "Not every recording of this scenario has times: there is no axis of time.";
  const timeless = program.scenarios.filter((scenario) => !scenario.hasTimes).length;
  if (axis !== "time" || state.scenario >= 0 || timeless === 0) return "";
  return `${timeless} of ${plural(program.scenarios.length, "scenario")} ${timeless === 1 ? "is" : "are"} left out over the time: ` +
    "not every recording has times. Over functions run, all are there.";
}

const knownPages = new Map();

/** The pages of a layout; two builds have different ones. */
function pagesOf(layout, size) {
  if (!knownPages.has(layout.text)) knownPages.set(layout.text, new Map());
  const bySize = knownPages.get(layout.text);
  if (!bySize.has(size)) bySize.set(size, new Pages(layout.text, size));
  return bySize.get(size);
}

/** Repaints after a change of colours. */
function repaint() {
  if (!program) return;
  showLegend();
  maps.forEach((map) => map.resize());
  table.draw();
}

function fillChoices() {
  const option = (value, text) => element("option", { value }, text);
  byId("model").replaceChildren(...summary.models.map((model, at) => option(at, `${model.model}: ${model.title}`)));
  byId("scenario").replaceChildren(
    ...(summary.scenarios.length > 1 ? [option(-1, `All ${summary.scenarios.length} scenarios`)] : []),
    ...summary.scenarios.map((scenario, at) => option(at, scenario.name)));
  if (summary.scenarios.length === 1) state.scenario = 0;
  takeAddress();
  byId("model").value = String(state.model);
  byId("scenario").value = String(state.scenario);
  byId("image-choice").hidden = summaries.length < 2;
  byId("image").replaceChildren(...summaries.map((one, at) => option(at, fileName(one.image))));
  byId("image").value = String(shownImage);
  byId("image").addEventListener("change", () => actions.chooseImage(Number(byId("image").value)));
  addEventListener("hashchange", () => {
    const image = addressed().get("image");
    if (image !== null && image !== fileName(summary.image) && summaries.some((one) => fileName(one.image) === image)) return location.reload();
    takeAddress();
    byId("model").value = String(state.model);
    byId("scenario").value = String(state.scenario);
    return update();
  });
  byId("model").addEventListener("change", () => actions.chooseModel(Number(byId("model").value)));
  byId("scenario").addEventListener("change", () => actions.chooseScenario(Number(byId("scenario").value)));
}

function listenToTheme() {
  const remembered = { get: () => { try { return localStorage.getItem("reorder-theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("reorder-theme", theme); } catch { /* storage is not allowed: the theme is not remembered */ } } };
  const chosen = remembered.get();
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  apply(chosen);
  segments(byId("theme"), "Colours", [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]], chosen ?? "auto", (theme) => {
    apply(theme);
    remembered.set(theme);
    repaint();
  });
  darkPreferred.addEventListener("change", repaint);
  addEventListener("beforeprint", () => { printing.isOn = true; repaint(); maps.forEach((map) => map.draw()); });
  addEventListener("afterprint", () => { printing.isOn = false; repaint(); });
}

function listen() {
  segments(byId("colour-by"), "Colour pages by", [["first", "First touch"], ["scenarios", "Scenarios"]], state.by, (value) => {
    state.by = value;
    putAddress();
    update();
  });
  const { hasTimes } = program.all;
  state.axis = hasTimes ? "time" : "functions";
  const axes = [["time", "Time"], ["functions", "Functions run"]];
  segments(byId("axis"), "Horizontal axis", hasTimes ? axes : axes.slice(1), state.axis, (value) => {
    state.axis = value;
    update();
  });
  segments(byId("biggest-which"), "Which functions", [["run", "Run at startup"], ["all", "All"]], state.biggest, (value) => {
    state.biggest = value;
    showBiggest(program, value);
  });
  const [first] = maps;
  byId("zoom-in").addEventListener("click", () => first.zoomBy(1.6));
  byId("zoom-out").addEventListener("click", () => first.zoomBy(1 / 1.6));
  byId("zoom-reset").addEventListener("click", () => { view.reset(); first.settle(); });
  actions.zoomed(1);
}

async function open() {
  listenToTheme();
  fillChoices();
  showFacts();
  showCoverage();
  showProcesses();
  update();
  const [columns, names] = await Promise.all([unpack("columns"), unpack("names")]);
  program = new Program(JSON.parse(columns), names);
  maps = [new PageMap(program, program.old, isCompared ? "Before" : "Pages of the text", byId("map-old"), view, actions)];
  if (program.new) maps.push(new PageMap(program, program.new, "After", byId("map-new"), view, actions));
  else byId("map-new").remove();
  byId("map-old").querySelector("h3").textContent = isCompared ? "Before" : "Pages";
  curves = new FaultCurves(program, byId("curve"));
  table = new FunctionTable(program);
  listen();
  showPins(program);
  update();
  document.documentElement.dataset.state = "ready";
  // Raw names are loaded last: few readers need them.
  setTimeout(async () => {
    program.rawNames = new Lines(await unpack("raw-names"), program.count);
    document.documentElement.dataset.names = "ready";
  });
}

open().catch((error) => {
  const box = byId("failure");
  box.hidden = false;
  box.textContent = `This browser cannot show the page: ${error.message}. It needs the versions of 2024 and later.`;
  throw error;
});

// Figures and elements.

/** 1234567 as 1 234 567, with spaces that do not break. */
function grouped(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Faults: as a whole number if possible, otherwise with one decimal. */
function faultsText(number) {
  const tenths = Math.round(number * 10) / 10;
  return Number.isInteger(tenths) || tenths >= 1000 ? grouped(tenths) : tenths.toFixed(1);
}

function bytesText(bytes) {
  if (bytes < 1024) return `${grouped(bytes)} B`;
  const units = ["KiB", "MiB", "GiB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < 2) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? grouped(value) : value.toFixed(1)} ${units[unit]}`;
}

function timeText(microseconds) {
  if (microseconds < 1000) return `${grouped(microseconds)} µs`;
  if (microseconds < 1e6) return `${(microseconds / 1000).toFixed(microseconds < 1e5 ? 2 : 1)} ms`;
  return `${(microseconds / 1e6).toFixed(2)} s`;
}

function shareText(share) {
  const percent = share * 100;
  return `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

/** The change from `old` to `after`: a true minus sign, no sign for zero. */
function changeText(old, after) {
  if (!(old > 0)) return "–";
  const percent = (after / old - 1) * 100;
  const digits = Math.abs(percent) < 10 ? 1 : 0;
  const text = Math.abs(percent).toFixed(digits);
  if (Number(text) === 0) return "0 %";
  return `${percent < 0 ? "\u2212" : "+"}${text} %`;
}

function plural(count, one, many = `${one}s`) {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}

/** An element; text becomes text, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

/** Two or more buttons of which one is pressed. */
function segments(container, label, choices, chosen, choose) {
  container.setAttribute("role", "radiogroup");
  container.setAttribute("aria-label", label);
  container.classList.add("segments");
  const buttons = choices.map(([value, text]) =>
    element("button", { type: "button", role: "radio", "data-value": value, onclick: () => select(value) }, text));
  const select = (value, isFocused = false) => {
    buttons.forEach((button) => {
      const isChosen = button.dataset.value === value;
      button.setAttribute("aria-checked", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
      if (isChosen && isFocused) button.focus();
    });
    choose(value);
  };
  container.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = buttons.findIndex((button) => button.getAttribute("aria-checked") === "true");
    select(choices[(at + step + choices.length) % choices.length][0], true);
  });
  container.replaceChildren(...buttons);
  buttons.forEach((button) => {
    const isChosen = button.dataset.value === chosen;
    button.setAttribute("aria-checked", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  });
}

/** Delays calls: of a series in quick succession only the last one is made. */
function settled(milliseconds, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}

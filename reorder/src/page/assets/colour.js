// A sequential scale: equal steps of lightness, hues from violet over green to yellow, which people who confuse red and
// green can tell apart. The first pages stand out most: dark on a light background, bright on a dark one.

/** Oklch to sRGB, the chroma lowered until the colour can be shown. */
function colourOf(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  for (let c = chroma; ; c -= 0.004) {
    const a = Math.max(c, 0) * Math.cos(angle);
    const b = Math.max(c, 0) * Math.sin(angle);
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    const linear = [
      4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
      -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ];
    if (c <= 0 || linear.every((value) => value >= -0.0005 && value <= 1.0005)) {
      const encoded = linear.map((value) => {
        const clipped = Math.min(Math.max(value, 0), 1);
        const gamma = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
        return Math.round(gamma * 255);
      });
      return `rgb(${encoded.join(" ")})`;
    }
  }
}

const STEPS = 128;

/** Colours from first to last. */
function makeScale(isDark) {
  return Array.from({ length: STEPS }, (_, step) => {
    const late = step / (STEPS - 1);
    const along = isDark ? 1 - late : late;
    const lightness = isDark ? 0.41 + along * 0.49 : 0.3 + along * 0.56;
    return colourOf(lightness, 0.155, 298 - along * 193);
  });
}

const scales = { light: makeScale(false), dark: makeScale(true) };

/** Colours for canvases; the style sheet gives the same values to elements. */
const palettes = {
  light: { untouched: "#e6e8ec", edge: "#ffffff", ink: "#1b1f27", faint: "#6a7180", mark: "#d3300d", onDark: "#ffffff", onBright: "#14171d" },
  dark: { untouched: "#272b33", edge: "#171a20", ink: "#e8eaee", faint: "#939aa8", mark: "#ff8a65", onDark: "#ffffff", onBright: "#14171d" },
};

const darkPreferred = matchMedia("(prefers-color-scheme: dark)");
const printing = { isOn: false };

function isDark() {
  if (printing.isOn) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : darkPreferred.matches;
}

const scale = () => (isDark() ? scales.dark : scales.light);
const palette = () => (isDark() ? palettes.dark : palettes.light);

/** The colour of position `late`, from 0 (first) to 1 (last). */
function colourAt(late) {
  return scale()[Math.min(STEPS - 1, Math.max(0, Math.round(late * (STEPS - 1))))];
}

/** A text colour that is legible on it. */
function inkAt(late) {
  const isBright = isDark() ? late < 0.55 : late > 0.55;
  return isBright ? palette().onBright : palette().onDark;
}

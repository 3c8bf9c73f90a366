// Lines over the last half hour, as SVG.

import { el, setText } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 48;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
/** The shortest time that is shown, in seconds: few points are no wide line. */
const LEAST_S = 300;

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The next of 1, 2, 5, 10, … that is not below a value. */
function nice(value) {
  if (!(value > 0)) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= value * 0.999) ?? 10 * ten;
}

/** Values as stretches without a gap; a step without a value is a gap. */
function stretches(points, stepS) {
  const all = [];
  let last = null;
  for (const [x, y] of points) {
    if (y === null || y === undefined) continue;
    if (last === null || x - last > stepS * 1.5) all.push([]);
    all.at(-1).push([x, y]);
    last = x;
  }
  return all;
}

/** A figure with two lines; `format` says a value with its unit. */
export function chart({ title, note, names, format, most }) {
  const svg = shape("svg", { role: "img" });
  const latest = names.map(() => el("strong"));
  const legend = el("p");
  names.forEach((name, place) => {
    const key = el("span", { class: place === 0 ? "key" : "key second", "aria-hidden": "true" });
    legend.append(el("span", {}, key, `${name} `, latest[place]));
  });
  const about = el("p", {}, note);
  const root = el("figure", {}, el("figcaption", {}, el("h3", {}, title), about, legend), svg);

  function draw({ lines, nowS, stepS, keptS, note: said }) {
    if (said !== undefined) setText(about, said);
    const width = Math.max(200, svg.clientWidth || 320);
    const height = Math.max(100, svg.clientHeight || 144);
    const values = lines.flat().map(([, y]) => y).filter((y) => y !== null && y !== undefined);
    const top = most ?? nice(Math.max(0, ...values));
    const first = Math.min(nowS, ...lines.flat().map(([x]) => x));
    const span = Math.min(keptS, Math.max(LEAST_S, nowS - first));
    const x = (s) => LEFT + (1 - Math.max(0, nowS - s) / span) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - Math.min(value, top) / top) * (height - TOP - BOTTOM);
    const made = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(top * share).toFixed(1);
      made.push(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      made.push(shape("text", { x: LEFT - 6, y: Number(at) + 4, "text-anchor": "end" }, format(top * share)));
    }
    const minutes = Math.round(span / 60);
    made.push(shape("text", { x: LEFT, y: height - 4 }, `${minutes} min ago`));
    made.push(shape("text", { x: width - RIGHT, y: height - 4, "text-anchor": "end" }, "now"));
    // The second line lies below the first.
    lines.map((points, place) => [points, place === 0 ? "first" : "second"]).reverse().forEach(([points, kind]) => {
      for (const stretch of stretches(points, stepS)) {
        const at = stretch.map(([s, value]) => [x(s).toFixed(1), y(value).toFixed(1)]);
        if (at.length === 1) made.push(shape("circle", { class: kind, cx: at[0][0], cy: at[0][1], r: 2.5 }));
        else made.push(shape("path", { class: kind, d: `M${at.map((one) => one.join(" ")).join("L")}` }));
      }
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(...made);
    const told = lines.map((points) => points.at(-1)?.[1]);
    told.forEach((value, place) => setText(latest[place], value === null || value === undefined ? "–" : format(value)));
    const spoken = names.map((name, place) => `${name} ${latest[place].textContent}`).join(", ");
    svg.setAttribute("aria-label", `${title}, latest: ${spoken}`);
  }

  return { root, draw };
}

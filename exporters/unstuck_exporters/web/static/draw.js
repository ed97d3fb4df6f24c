// Making elements: always nodes and text, never markup from a string.

import { clock, count, shown, span } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
export const HALF_HOUR = 1800;

/** An HTML element with attributes and children; a string child becomes text. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Text of an element, touched only when it changes, so that a reader's selection and a screen reader are left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Class names of an element, touched only when they change. */
export function dress(element, names) {
  if (element.className !== names) element.className = names;
}

/** A name from Redis: isolated, so that its direction does not spill over. */
export function name(text, attributes = {}) {
  return h("bdi", attributes, shown(text));
}

/** The last half hour of a queue: jobs that wait as a line, moments with stuck jobs as red strokes on the ground. */
export function spark(points, now) {
  const from = now - HALF_HOUR;
  const kept = points.filter((point) => point[0] >= from);
  const most = Math.max(1, ...kept.map((point) => point[1]));
  const x = (at) => ((at - from) / HALF_HOUR) * 300;
  const y = (value) => 31 - (value / most) * 28;
  const path = kept.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
  const stuck = kept.filter((point) => point[3] > 0);
  const least = kept.length ? Math.min(...kept.map((point) => point[1])) : 0;
  const last = kept.length ? kept[kept.length - 1][1] : 0;
  let told = kept.length < 2 ? "No history yet" : `Waiting jobs over the last 30 minutes: ${least} to ${most}, now ${last}`;
  if (stuck.length) told += `; stuck jobs from ${clock(stuck[0][0])} to ${clock(stuck[stuck.length - 1][0])}`;
  const picture = s("svg", { class: "spark", viewBox: "0 0 300 34", preserveAspectRatio: "none", role: "img", "aria-label": told });
  picture.append(s("line", { class: "base", x1: 0, x2: 300, y1: 31.5, y2: 31.5 }));
  if (kept.length > 1) {
    const [first, end] = [x(kept[0][0]).toFixed(1), x(kept[kept.length - 1][0]).toFixed(1)];
    picture.append(s("path", { class: "area", d: `${path}L${end} 31L${first} 31Z` }), s("path", { class: "line", d: path }));
  }
  const width = (18 / HALF_HOUR) * 300;
  for (const point of stuck) {
    const at = x(point[0]);
    picture.append(s("line", { class: "stuck", x1: (at - width / 2).toFixed(1), x2: (at + width / 2).toFixed(1), y1: 32, y2: 32 }));
  }
  return [picture, kept.length > 1 ? most : null];
}

/** The last half hour of events: a stroke for each, tall for rescues. */
export function strip(events, now, kinds, rescues) {
  const from = now - HALF_HOUR;
  const kept = events.filter((event) => event.at >= from && event.kind !== "pacing_changed");
  const saved = kept.filter((event) => rescues.has(event.kind)).length;
  const told = `${count(saved, "rescue")} and ${count(kept.length - saved, "other event")} in the last 30 minutes`;
  const picture = s("svg", { class: "strip", viewBox: "0 0 1800 46", preserveAspectRatio: "none", role: "img", "aria-label": told });
  for (let minute = 5; minute < 30; minute += 5) {
    picture.append(s("line", { class: "grid", x1: minute * 60, x2: minute * 60, y1: 0, y2: 46 }));
  }
  for (const event of kept) {
    const [, mood] = kinds[event.kind] ?? ["", ""];
    const at = (event.at - from).toFixed(0);
    picture.append(s("line", { class: `tick ${mood}`, x1: at, x2: at, y1: rescues.has(event.kind) ? 6 : 28, y2: 42 }));
  }
  return [picture, told];
}

/** `heartbeat_at_ms` and the like as people read them. */
export function fact(key, value) {
  if (key.endsWith("_ms") && key.includes("_at") && Number.isFinite(value)) return [key.slice(0, -3), clock(value / 1000)];
  if (key.endsWith("_seconds") && Number.isFinite(value)) return [key.slice(0, -8), span(value)];
  if (key.endsWith("_ms") && Number.isFinite(value)) return [key.slice(0, -3), span(value / 1000)];
  return [key, String(value)];
}

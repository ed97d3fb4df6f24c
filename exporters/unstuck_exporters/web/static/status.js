// The page's clockwork: ask the agent every two seconds, keep what was last seen, and say how old it is.
//
// Nothing is claimed that is not known: when the agent is silent, or its data is old, the page says so first and shows
// what it saw last, marked as old. `api/v1/status` answers 304 while nothing has happened; events are asked for only
// when the status names a newer one; histories only for the cards that are on the page, every fifteen seconds.

import { dress, h, HALF_HOUR, say, strip } from "./draw.js";
import { agentPairs, card, duty, event, facts, finding } from "./parts.js";
import { clock, count, KINDS, RESCUES, shown, span } from "./words.js";

const EVERY_MS = 2000;
const PATIENCE_MS = 5000;
const HISTORY_EVERY_MS = 15000;
const STEP = { cards: 48, findings: 25, events: 25 };
const OLD_AFTER = 15; // seconds
const LONGEST_QUERY = 6000;
const MOST_EVENTS = 500;

const at = (id) => document.getElementById(id);
const seen = { doc: null, tag: "", at: 0, cursor: "", events: [], trouble: "", silentSince: 0, histories: new Map(), parts: new Map(), cards: new Map() };
const room = { ...STEP };
let historyAt = 0;

/** Seconds of the agent's clock, as far as we can tell. */
const now = () => (seen.doc ? seen.doc.agent.at + (performance.now() - seen.at) / 1000 : Date.now() / 1000);
const placeOf = (one) => `${one.backend}/${one.queue}`;

async function ask(path, headers = {}) {
  const answer = await fetch(path, { headers, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok && answer.status !== 304) throw new Error(answer.status === 401 ? "it wants a user name and password: load the page again" : `it answers ${answer.status}`);
  return answer;
}

async function poll() {
  try {
    const answer = await ask("api/v1/status", seen.tag ? { "If-None-Match": seen.tag } : {});
    if (answer.status !== 304) {
      seen.doc = await answer.json();
      seen.tag = answer.headers.get("ETag") ?? "";
      seen.at = performance.now();
      take(seen.doc);
    }
    seen.trouble = "";
    seen.silentSince = 0;
    if (seen.doc.agent.cursor !== seen.cursor) await askEvents();
    if (performance.now() - historyAt >= HISTORY_EVERY_MS) await askHistories();
  } catch (error) {
    seen.silentSince ||= Date.now();
    seen.tag = "";
    seen.trouble = error instanceof TypeError || error.name === "TimeoutError" ? "" : error.message;
  }
  draw();
}

/** Remember each queue's last known part, with the time of the look. */
function take(doc) {
  const newest = new Set();
  for (const part of doc.queues) {
    const place = placeOf(part);
    newest.add(place);
    seen.parts.set(place, { part, old: false, at: doc.agent.at });
  }
  for (const one of doc.agent.queues_not_fresh) {
    const place = placeOf(one);
    newest.add(place);
    const before = seen.parts.get(place);
    const part = { ...(before?.part ?? { ...one, unseen: true, stuck: 0, waiting: 0, running: 0 }), error: one.error || undefined };
    seen.parts.set(place, { part, old: true, at: before?.at ?? 0 });
  }
  for (const place of seen.parts.keys()) {
    if (!newest.has(place)) seen.parts.delete(place);
  }
}

async function askEvents() {
  const got = await (await ask(`api/v1/events?since=${encodeURIComponent(seen.cursor)}`)).json();
  seen.events = (got.continues ? [...seen.events, ...got.events] : got.events).slice(-MOST_EVENTS);
  seen.cursor = got.cursor;
}

/** The histories of the cards on the page, in a few requests; of those that are known only what is new. */
async function askHistories() {
  historyAt = performance.now();
  const wanted = rows().slice(0, room.cards).map((row) => placeOf(row.part)).filter((place) => place.isWellFormed?.() ?? true);
  const fresh = wanted.filter((place) => !seen.histories.has(place));
  const known = wanted.filter((place) => seen.histories.has(place));
  const lasts = known.map((place) => seen.histories.get(place).at(-1)?.[0] ?? 0);
  await askHistory(fresh, 0);
  await askHistory(known, Math.min(...lasts));
  for (const place of seen.histories.keys()) {
    if (!seen.parts.has(place)) seen.histories.delete(place);
  }
}

async function askHistory(places, since) {
  let names = [];
  const send = async () => {
    if (!names.length) return;
    const got = await (await ask(`api/v1/history?since=${since}&${names.join("&")}`)).json();
    for (const one of got.queues) {
      const before = seen.histories.get(placeOf(one)) ?? [];
      const last = before.at(-1)?.[0] ?? 0;
      const points = [...before, ...one.points.filter((point) => point[0] > last)];
      seen.histories.set(placeOf(one), points.filter((point) => point[0] > now() - HALF_HOUR - 60));
    }
    names = [];
  };
  for (const place of places) {
    const name = `queue=${encodeURIComponent(place)}`;
    if (names.length >= 50 || names.join("&").length + name.length > LONGEST_QUERY) await send();
    if (name.length <= LONGEST_QUERY) names.push(name);
  }
  await send();
}

/** The queues to show, in the chosen order: trouble first unless another is chosen. */
function rows() {
  const wanted = at("filter").value.trim().toLowerCase();
  const all = [];
  for (const [place, { part, old, at: when }] of seen.parts) {
    if (wanted && !place.toLowerCase().includes(wanted)) continue;
    const rank = part.stuck ? 5 : part.error ? 4 : part.brake ? 4 : old ? 3 : part.suspect || part.inconclusive ? 2 : part.paused ? 1 : 0;
    all.push({ part, old, oldFor: now() - when, rank, place });
  }
  const oldest = (part) => part.oldest_waiting_seconds ?? -1;
  const order = {
    trouble: (a, b) => b.rank - a.rank || b.part.stuck - a.part.stuck || b.part.waiting - a.part.waiting,
    waiting: (a, b) => b.part.waiting - a.part.waiting,
    oldest: (a, b) => oldest(b.part) - oldest(a.part),
    running: (a, b) => b.part.running - a.part.running,
    name: () => 0,
  }[at("sort").value];
  return all.sort((a, b) => order(a, b) || (a.place < b.place ? -1 : 1));
}

function drawVerdict() {
  const { doc } = seen;
  if (!doc) {
    if (!seen.silentSince) return;
    return verdict("bad", "!", "The agent does not answer", seen.trouble ? `The agent was asked, but ${shown(seen.trouble)}.` : "Nothing has been heard from it since this page was opened.");
  }
  const stuck = doc.queues.reduce((sum, q) => sum + q.stuck, 0);
  const places = doc.queues.filter((q) => q.stuck).length;
  const suspect = doc.queues.reduce((sum, q) => sum + q.suspect, 0);
  const unsure = doc.queues.reduce((sum, q) => sum + q.inconclusive, 0);
  const waiting = doc.queues.reduce((sum, q) => sum + q.waiting, 0);
  const running = doc.queues.reduce((sum, q) => sum + q.running, 0);
  const all = `${count(doc.queues.length, "queue")}, ${waiting.toLocaleString("en")} waiting, ${running.toLocaleString("en")} in flight`;
  const also = [suspect && `${suspect} suspect`, unsure && `${unsure} inconclusive`].filter(Boolean).join(", ");
  if (seen.silentSince) return verdict("bad", "!", "The agent does not answer", `What you see is from ${clock(doc.agent.at)}.`);
  if (!doc.agent.redis.up) return verdict("bad", "!", "Redis is away", "Nothing can be said about the queues now. What you see below was seen last.");
  if (stuck) return verdict("bad", "!", `${count(stuck, "stuck job")} in ${count(places, "queue")}`, also ? `${all}; ${also}` : all);
  if (doc.agent.role === "follower") return verdict("warn", "i", "This agent stands by", doc.agent.leader ? `${shown(doc.agent.leader)} leads and shows the queues.` : "No leader has been seen.");
  if (!doc.queues.length) return verdict("warn", "i", doc.agent.ready ? "No queue has been found yet" : "The first look is under way", shown(doc.agent.not_ready_because));
  if (also) return verdict("warn", "?", "Nothing is proven stuck", `${all}; ${also}`);
  return verdict("good", "✓", "Nothing is stuck", all);
}

/** The head of the page. Of it only the headline is announced to those who listen, not each change of the numbers. */
function verdict(mood, mark, headline, subline) {
  dress(at("verdict"), `verdict ${mood}`);
  say(at("mark"), mark);
  say(at("headline"), headline);
  say(at("subline"), subline);
  const title = `${mood === "good" ? "" : `${mark} `}${headline} – unstuck`;
  if (document.title !== title) document.title = title;
}

function drawNotices() {
  const { doc } = seen;
  const told = [];
  if (seen.silentSince && doc) told.push(["bad", `The agent has not answered since ${clock(seen.silentSince / 1000)}${seen.trouble ? `: ${shown(seen.trouble)}` : ""}. It is asked again every ${EVERY_MS / 1000} seconds.`]);
  if (doc && !doc.agent.redis.up) told.push(["bad", `Redis is away: ${shown(doc.agent.redis.trouble) || "it has not answered yet"}`]);
  const stale = doc?.agent.queues_not_fresh.length ?? 0;
  if (stale) told.push(["warn", `${count(stale, "queue")} ${stale === 1 ? "has" : "have"} no fresh data: what is shown of ${stale === 1 ? "it" : "them"} was seen last.`]);
  for (const brake of doc?.agent.brakes ?? []) told.push(["bad", `The brake of ${shown(placeOf(brake))} is engaged: ${shown(brake.detail)}`]);
  const key = JSON.stringify(told);
  if (at("notices").dataset.told === key) return;
  at("notices").dataset.told = key;
  at("notices").replaceChildren(...told.slice(0, 6).map(([mood, text]) => h("p", { class: `notice ${mood}` }, text)));
}

function drawFresh() {
  if (!seen.doc) return say(at("fresh"), "");
  const age = seen.doc.agent.ages.newest_look_seconds;
  const since = (performance.now() - seen.at) / 1000;
  const seconds = (age ?? 0) + since;
  const text = age === null ? `heard ${Math.round(since)} s ago` : seconds > OLD_AFTER ? `data is ${span(seconds)} old` : seconds < 1 ? "seen just now" : `seen ${Math.round(seconds)} s ago`;
  dress(at("fresh"), seconds > OLD_AFTER || seen.silentSince ? "fresh bad" : "fresh");
  say(at("fresh"), text);
}

/** A list whose entries are made anew only when they change. */
function drawList(list, key, make) {
  const text = JSON.stringify(key);
  if (list.dataset.told === text) return;
  list.dataset.told = text;
  list.replaceChildren(...make());
}

function more(button, left, noun) {
  button.hidden = left <= 0;
  if (left > 0) say(button, `Show more ${noun} (${left.toLocaleString("en")} left)`);
}

function drawFindings(doc) {
  const outlooks = new Map(doc.agent.outlook.map((one) => [`${placeOf(one)}/${one.job}`, one]));
  const shownNow = doc.findings.slice(0, room.findings);
  const told = doc.findings.length;
  say(at("trouble-count"), told ? `${told.toLocaleString("en")}${told >= 500 ? ", the worst of each queue" : ""}` : "");
  at("trouble-none").hidden = told > 0;
  say(at("trouble-none"), seen.silentSince || !doc.agent.redis.up ? "Unknown while nothing is seen." : "None.");
  const outlook = (one) => outlooks.get(`${placeOf(one)}/${one.job}`);
  drawList(at("findings"), shownNow.map((one) => [one, outlook(one)]), () => shownNow.map((one) => finding(one, outlook(one))));
  more(at("more-findings"), told - shownNow.length, "jobs");
}

function drawQueues() {
  const all = rows();
  const part = all.slice(0, room.cards);
  const wanted = at("filter").value.trim();
  say(at("queue-count"), wanted ? `${all.length} of ${seen.parts.size}` : `${seen.parts.size}`);
  at("queues-none").hidden = all.length > 0;
  say(at("queues-none"), seen.parts.size ? "No queue has such a name." : "No queue is shown by this agent.");
  const list = at("cards");
  const kept = new Set(part.map((row) => row.place));
  for (const [place, one] of seen.cards) {
    if (!kept.has(place)) { one.element.remove(); seen.cards.delete(place); }
  }
  part.forEach((row, index) => {
    let one = seen.cards.get(row.place);
    if (!one) seen.cards.set(row.place, (one = card()));
    one.update(row, seen.histories.get(row.place), now());
    if (list.children[index] !== one.element) list.insertBefore(one.element, list.children[index] ?? null);
  });
  more(at("more-queues"), all.length - part.length, "queues");
}

function drawEvents() {
  const [picture, told] = strip(seen.events, now(), KINDS, RESCUES);
  drawList(at("strip"), [seen.cursor, Math.floor(now() / 15)], () => [picture, h("p", { class: "caption" }, h("span", {}, "30 min ago"), h("span", {}, told), h("span", {}, "now"))]);
  const only = at("only-rescues").checked;
  const wanted = seen.events.filter((one) => (only ? RESCUES.has(one.kind) : one.kind !== "pacing_changed")).reverse();
  const part = wanted.slice(0, room.events);
  say(at("event-count"), wanted.length ? `${wanted.length}` : "");
  at("events-none").hidden = wanted.length > 0;
  say(at("events-none"), only ? "No job had to be rescued since this agent started." : "Nothing has happened since this agent started.");
  drawList(at("events"), part.map((one) => one.number), () => part.map(event));
  more(at("more-events"), wanted.length - part.length, "events");
}

function drawAgent(doc) {
  const made = facts(doc, doc.agent);
  if (seen.silentSince) made.unshift(["Agent", "does not answer", "bad"]);
  drawList(at("facts"), made, () => made.map(([label, text, mood]) => h("li", {}, h("span", { class: "name" }, label), h("span", { class: mood }, text))));
  const pairs = agentPairs(doc, doc.agent, now());
  drawList(at("agent-facts"), pairs, () => pairs.flatMap(([label, text]) => [h("dt", {}, label), h("dd", {}, text)]));
  drawList(at("duties"), doc.agent.duties, () => doc.agent.duties.map(duty));
}

function draw() {
  drawVerdict();
  drawNotices();
  drawFresh();
  if (!seen.doc) return;
  drawFindings(seen.doc);
  drawQueues();
  drawEvents();
  drawAgent(seen.doc);
}

/** Ask, then wait; a page that nobody sees asks nothing until it is looked at again. */
async function forever() {
  for (;;) {
    if (document.hidden) await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true }));
    else {
      await poll();
      await new Promise((go) => setTimeout(go, EVERY_MS));
    }
  }
}

function redraw() {
  if (!seen.doc) return;
  draw();
  historyAt = 0;
}

at("filter").addEventListener("input", () => { room.cards = STEP.cards; redraw(); });
at("sort").addEventListener("change", () => { room.cards = STEP.cards; redraw(); });
at("only-rescues").addEventListener("change", redraw);
at("more-queues").addEventListener("click", () => { room.cards += STEP.cards; redraw(); });
at("more-findings").addEventListener("click", () => { room.findings += STEP.findings; redraw(); });
at("more-events").addEventListener("click", () => { room.events += STEP.events; redraw(); });
setInterval(drawFresh, 1000);
forever();

// The parts of the page: a card per queue, an entry per finding and event, the facts about the agent.

import { dress, fact, h, name, say, spark } from "./draw.js";
import { clock, count, GATE, HELD, KINDS, RESCUES, shown, size, span } from "./words.js";

const NUMBERS = [["waiting", "waiting"], ["oldest", "oldest"], ["running", "in flight"], ["stuck", "stuck"], ["workers", "workers"], ["interval", "interval"]];
let cards = 0;

/** A card for a queue: `element`, and `update` that changes only what is new. */
export function card() {
  const title = h("h3", { id: `queue-${++cards}` });
  const system = h("span", { class: "system" });
  const cells = {};
  const list = h("dl", { class: "numbers" });
  for (const [key, label] of NUMBERS) {
    cells[key] = h("dd");
    list.append(h("div", {}, h("dt", {}, label), cells[key]));
  }
  const notes = h("p", { class: "notes" });
  const figure = h("div");
  const article = h("article", { "aria-labelledby": title.id }, h("header", {}, title, system), list, notes, figure);
  const element = h("li", {}, article);
  let drawn = null;
  let noted = null;

  function update(row, points, now) {
    const q = row.part;
    if (!title.firstChild) {
      title.append(name(q.queue));
      title.title = shown(q.queue, 2000);
      system.append(shown(q.backend));
    }
    const known = !q.unseen && !q.error;
    say(cells.waiting, known ? q.waiting.toLocaleString("en") : "?");
    say(cells.oldest, known ? span(q.oldest_waiting_seconds) : "?");
    say(cells.running, known ? q.running.toLocaleString("en") + (q.truncated ? "+" : "") : "?");
    say(cells.stuck, known ? q.stuck.toLocaleString("en") : "?");
    say(cells.workers, known ? q.workers.toLocaleString("en") : "?");
    say(cells.interval, span(q.interval_seconds));
    dress(cells.stuck, q.stuck ? "bad" : "");
    dress(article, `card ${row.old ? "old" : q.stuck || q.error ? "bad" : row.rank > 0 ? "warn" : "good"}`);
    const tags = notesOf(row);
    const key = tags.join("\n");
    if (key !== noted) {
      noted = key;
      notes.replaceChildren(...tags.map(([mood, text]) => h("span", { class: `tag ${mood}` }, text)));
    }
    const stamp = points && points.length ? `${points.length}/${points[points.length - 1][0]}/${q.waiting}/${q.stuck}` : "none";
    if (stamp !== drawn) {
      drawn = stamp;
      const all = [...(points ?? [])];
      if (all.length && known && !row.old) all.push([now, q.waiting, q.running, q.stuck, null, null]);
      const [picture, most] = spark(all, now);
      figure.replaceChildren(picture, h("div", { class: "caption" }, h("span", {}, "waiting, 30 min"), h("span", {}, most === null ? "no history yet" : `most ${most.toLocaleString("en")}`)));
    }
  }
  return { element, update };
}

function notesOf({ part: q, old, oldFor }) {
  const tags = [];
  if (old) tags.push(["warn", q.unseen ? "no fresh data" : `as seen ${span(oldFor)} ago`]);
  if (q.error) tags.push(["bad", shown(q.error)]);
  if (q.brake) tags.push(["bad", `brake: ${shown(q.brake)}`]);
  if (q.suspect) tags.push(["warn", `${q.suspect} suspect`]);
  if (q.inconclusive) tags.push(["warn", `${q.inconclusive} inconclusive`]);
  if (q.paused) tags.push(["warn", "paused"]);
  if (q.dead) tags.push(["", `${q.dead.toLocaleString("en")} dead`]);
  if (q.scheduled) tags.push(["", `${q.scheduled.toLocaleString("en")} scheduled`]);
  if (q.quarantined) tags.push(["warn", `${q.quarantined} quarantined`]);
  if (!q.unseen && (q.mode === "observe" || q.capability === "observe")) tags.push(["", "observed only"]);
  return tags;
}

/** What will become of a job, one sentence. */
export function will(finding, outlook) {
  if (!outlook) return "";
  if (outlook.held_by) {
    const held = HELD[outlook.held_by] ?? outlook.held_by;
    return `${finding.verdict === "stuck" ? "Left where it is" : "Only watched"}: ${held}`;
  }
  if (outlook.within_seconds === null) return "Will be put back once it is proven stuck";
  const when = outlook.within_seconds < 1 ? "now" : `within ${span(outlook.within_seconds)}`;
  return finding.verdict === "stuck" ? `Will be put back ${when}` : `Will be put back ${when}, unless it shows life`;
}

/** An entry for a finding. */
export function finding(one, outlook) {
  const who = h("div", { class: "who" }, h("span", { class: `tag ${one.verdict}` }, one.verdict), h("span", { class: "job" }, one.job === null ? "queue " : "job ", name(one.job ?? one.queue, { class: "mono" })));
  if (one.job !== null) who.append(h("span", {}, "in ", name(one.queue)));
  who.append(h("span", { class: "dim" }, shown(one.backend)));
  if (one.job !== null) who.append(h("span", { class: "since" }, `no sign of life for ${span(one.unchanged_seconds)}`));
  const entry = h("li", { class: `finding ${one.verdict}` }, who, h("p", {}, h("span", { class: "mono" }, shown(one.reason)), `: ${shown(one.detail, 600)}`));
  const next = one.job === null ? "" : will(one, outlook);
  if (next) entry.append(h("p", { class: "will" }, next));
  const facts = Object.entries(one.evidence).map(([key, value]) => fact(key, value));
  if (one.worker) facts.unshift(["worker", one.worker]);
  if (facts.length) {
    const list = h("dl", { class: "evidence" });
    for (const [key, value] of facts) list.append(h("div", {}, h("dt", {}, shown(key.replaceAll("_", " "))), h("dd", {}, name(value))));
    entry.append(list);
  }
  return entry;
}

/** An entry for an event. */
export function event(one) {
  const [label, mood] = KINDS[one.kind] ?? [one.kind.replaceAll("_", " "), ""];
  const told = h("span", { class: "told" });
  if (one.job) told.append("job ", name(one.job, { class: "mono" }), " ");
  if (one.queue) told.append(one.job ? "in " : "queue ", name(one.queue), " ");
  if (one.detail || one.reason) told.append(h("span", { class: "dim" }, shown(one.detail || one.reason, 600)));
  const at = h("time", { datetime: new Date(one.at * 1000).toISOString() }, clock(one.at));
  return h("li", { class: RESCUES.has(one.kind) ? "rescue" : "" }, at, h("span", { class: "what" }, h("span", { class: `tag ${mood}` }, shown(label))), told);
}

/** The facts in the head of the page: [name, text, mood]. */
export function facts(doc, agent) {
  const { gate, redis } = agent;
  const made = [["Redis", redis.up ? `answers${doc.redis.version ? `, ${shown(doc.redis.version)}` : ""}` : "is away", redis.up ? "good" : "bad"]];
  const why = gate.reasons.map((cause) => GATE[cause] ?? shown(cause).replaceAll("_", " ")).join(", ");
  const opens = gate.opens_in_seconds ? `, opens in ${span(gate.opens_in_seconds)}` : "";
  made.push(["Gate", gate.open ? "open" : `closed${why ? `: ${why}` : ""}${opens}`, gate.open ? "good" : "warn"]);
  const brakes = agent.brakes.length;
  made.push(["Brake", brakes ? `engaged in ${count(brakes, "queue")}` : "free", brakes ? "bad" : "good"]);
  const roles = { leader: ["this agent", "good"], follower: [agent.leader ? shown(agent.leader, 60) : "none seen", agent.leader ? "good" : "warn"], alone: ["none: may not write, observes alone", "warn"], starting: ["not asked yet", "warn"] };
  made.push(["Leader", ...roles[agent.role]]);
  const late = agent.duties.filter((duty) => duty.overdue_seconds > 0);
  if (late.length) made.push(["Late", late.map((duty) => `${shown(duty.duty)} by ${span(duty.overdue_seconds)}`).join(", "), "bad"]);
  if (agent.queues_dropped) made.push(["Left out", count(agent.queues_dropped, "queue"), "bad"]);
  return made;
}

/** What there is to know of the agent, as pairs. */
export function agentPairs(doc, agent, now) {
  const pairs = [["version", agent.version || "unknown"], ["running for", span(now - agent.started_at)], ["part", agent.role === "leader" ? `leader, epoch ${agent.epoch}` : agent.role]];
  if (agent.not_ready_because) pairs.push(["not ready", agent.not_ready_because]);
  if (doc.redis.version) pairs.push(["Redis", `${doc.redis.version} ${doc.redis.role}, ${size(doc.redis.used_memory_bytes)} used${doc.redis.maxmemory_bytes ? ` of ${size(doc.redis.maxmemory_bytes)}` : ""}`]);
  pairs.push(["queues looked at", agent.ages.newest_look_seconds === null ? "not by this agent" : `${span(agent.ages.newest_look_seconds)} to ${span(agent.ages.oldest_look_seconds)} before this report`]);
  return pairs.map(([label, value]) => [label, shown(value)]);
}

/** One duty in one line. */
export function duty(one) {
  const late = one.overdue_seconds > 0;
  const text = `${shown(one.duty)}: ${count(one.passes, "pass").replace("passs", "passes")}, last took ${span(one.seconds)}${one.missed ? `, ${one.missed} missed` : ""}${one.detail ? `; ${shown(one.detail)}` : ""}${late ? `; late by ${span(one.overdue_seconds)}` : ""}`;
  return h("li", late || (!one.ok && one.passes) ? { class: "bad" } : {}, text);
}

// Words and numbers for people. Everything that comes from Redis goes through `shown` and reaches the page as text.

const HIDDEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff]/gu;

/** A text in which signs that cannot be seen, or that turn the direction, are written as escapes; cut when too long. */
export function shown(text, longest = 300) {
  const all = String(text ?? "");
  const cut = all.length > longest ? all.slice(0, longest - 40) + "…" + all.slice(-39) : all;
  return cut.replace(HIDDEN, (sign) => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0"));
}

/** A duration: `850 ms`, `12 s`, `3 min`, `2.5 h`, `4 d`; `–` for none. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) seconds = 0;
  if (seconds > 0 && seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size) return `${(seconds / size).toFixed(1).replace(/\.0$/, "")} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

/** `1 job`, `2 jobs`. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** The time of day of a Unix time, in the reader's zone. */
export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString("en-GB");
}

/** Bytes. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  for (const unit of ["B", "kB", "MB"]) {
    if (bytes < 1024) return `${unit === "B" ? bytes : bytes.toFixed(1)} ${unit}`;
    bytes /= 1024;
  }
  return `${bytes.toFixed(1)} GB`;
}

/** What holds a job back, as the end of a sentence. */
export const HELD = {
  dry_run: "the mode of this queue is observe",
  observe_only: "this system's layout allows no safe reclaim",
  gate_closed: "the gate is closed",
  brake: "the brake is engaged",
  paused: "the queue is paused",
  exempt: "this job is never to be reclaimed",
  alert_only: "a missed deadline is only told",
};

/** The causes that close the gate, as people say them; an unknown one is shown as it is. */
export const GATE = {
  loading: "Redis is loading its data",
  readonly: "Redis is read-only",
  oom: "Redis is out of memory",
  busy: "a script keeps Redis busy",
  noreplicas: "too few replicas",
  misconf: "Redis cannot save",
  restarted: "Redis was restarted",
  failover: "a replica was promoted",
  role: "Redis changed its role",
  evicting: "Redis evicts keys",
  young: "Redis is just up",
  clock: "clocks disagree",
  late: "the agent's sweep came late",
  unreachable: "Redis did not answer",
  unwritable: "the agent's write failed",
  watching: "watching has just begun",
};

/** Kinds of events: what they are called, and whether they are good or bad news. */
export const KINDS = {
  requeued: ["put back", "good"],
  dead_lettered: ["dead-lettered", "bad"],
  lock_released: ["lock released", "good"],
  stuck: ["stuck", "bad"],
  confirmed: ["confirmed stuck", "bad"],
  suspected: ["suspected", "warn"],
  cleared: ["cleared", "good"],
  lost_race: ["somebody was faster", ""],
  skipped: ["left alone", "warn"],
  inconclusive: ["inconclusive", "warn"],
  brake_engaged: ["brake engaged", "bad"],
  brake_released: ["brake released", "good"],
  gate_closed: ["gate closed", "warn"],
  gate_opened: ["gate opened", "good"],
  leader_acquired: ["leads", "good"],
  leader_lost: ["leads no more", "warn"],
  queue_unreadable: ["unreadable", "bad"],
  pacing_changed: ["interval changed", ""],
};

/** The kinds that are rescues: a stuck job was dealt with. */
export const RESCUES = new Set(["requeued", "dead_lettered", "lock_released"]);

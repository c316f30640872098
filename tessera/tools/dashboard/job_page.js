"use strict";
// Asks once a second how the job is, and shows it. What others have written, as names, paths and lines of the log, goes
// into the page as text only.
const SVG = "http://www.w3.org/2000/svg";
const token = new URLSearchParams(location.search).get("token") || "";
const byId = id => document.getElementById(id);
const STATES_OF_TROUBLE = new Set(["lost", "failed", "silent", "waiting"]);
const OVER = new Set(["completed", "failed", "ended by a signal"]);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function bytes(n) {
  if (!n) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; ++unit; }
  return (unit === 0 ? n : n.toFixed(1)) + " " + units[unit];
}

// A number for people; null is none, a text says that it is not finite.
function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  return String(Number(value.toPrecision(6)));
}

function duration(seconds) {
  const whole = Math.floor(seconds), two = n => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)} h`;
}

// Replaces the children only where something is another one than before, so that what is selected or read aloud stays.
function fill(parent, key, make) {
  if (parent.dataset.key === key) return;
  parent.dataset.key = key;
  parent.replaceChildren(...make());
}

// Who is waited for now, or was most of the time.
function slowest(state) {
  if (state.slowest === null) return OVER.has(state.state) ? "–" : "none stands out";
  const { rank, percent, waiting } = state.slowest;
  const now = waiting > 0 ? `${waiting} other${waiting > 1 ? "s wait" : " waits"} for it now` : "";
  const lately = percent === null ? "" : OVER.has(state.state) ? `others waited for it ${percent}\u00a0% of the time`
    : `others wait for it ${percent}\u00a0% of the time`;
  return `${rank} (${[now, lately].filter(text => text).join(", ")})`;
}

function showFacts(state) {
  const ofAll = state.epochs > 0 ? ` of ${state.epochs}` : "";
  const facts = [
    ["state", state.state + (state.reason ? `: ${state.reason}` : "")],
    [OVER.has(state.state) ? "ran for" : "running for", duration(state.seconds)],
    ["step", state.step > 0 ? String(state.step) : "no step yet"],
    ["epoch", state.epoch > 0 ? `${state.epoch}${ofAll}` : "–"],
    ["loss", number(state.loss)],
    ["rows per second", number(state.rows_per_second)],
    ["learning rate", number(state.learning_rate)],
    ["ranks", String(state.num_ranks)],
    ["memory of all ranks", bytes(state.resident_bytes)],
    ["on their devices", bytes(state.arena_bytes)],
    ["parallel mode", state.mode || "–"],
    ["plan", state.plan || "–"],
    ["slowest rank", slowest(state)],
  ];
  fill(byId("facts"), JSON.stringify(facts), () => facts.map(([name, value]) => {
    const pair = element("div");
    const said = element("dd");
    // A long name may be broken where its words meet.
    value.split(/(?<=_)/).forEach((word, i) => said.append(...(i > 0 ? [element("wbr")] : []), word));
    pair.append(element("dt", name), said);
    return pair;
  }));
}

// The multiples of 1, 2 or 5 times a power of ten between two values: at most so many intervals, none shorter than the
// least.
function ticks(low, high, most, least) {
  const whole = (high - low) / most, power = 10 ** Math.floor(Math.log10(whole));
  const width = Math.max(least, power * ([1, 2, 5].find(times => times * power >= whole) || 10));
  const decimals = Math.max(0, -Math.floor(Math.log10(width) + 1e-9)), largest = Math.max(Math.abs(low), Math.abs(high));
  const isPlain = decimals <= 6 && largest < 1e6;
  const found = [];
  for (let i = Math.ceil(low / width - 1e-9); found.length <= most && i * width <= high + width * 1e-9; ++i) {
    const value = i * width;
    found.push({ value, text: isPlain ? value.toFixed(decimals) : String(Number(value.toPrecision(12))) });
  }
  return found;
}

// A chart keeps the step that its reader has chosen.
class Chart {
  constructor(title, unit) {
    this.title = title;
    this.unit = unit;
    this.at = null;  // the step that is said; null: the newest
    this.lines = [];
    this.figure = element("figure");
    this.figure.tabIndex = 0;
    this.figure.setAttribute("aria-label", `${title} over the steps; arrow keys say its values`);
    const caption = element("figcaption");
    this.legend = element("span", "");
    this.output = element("output", "");
    // Values are read aloud to who asks for them by keys, not once a second.
    this.output.setAttribute("aria-live", "off");
    caption.append(element("b", title + (unit ? ` (${unit})` : "")), " ", this.legend, document.createElement("br"), this.output);
    this.drawing = drawn("svg", { viewBox: "0 0 460 220", role: "img", "aria-label": title });
    this.empty = element("p", "No step yet.");
    this.figure.append(caption, this.drawing, this.empty);
    this.drawing.addEventListener("pointermove", event => {
      if (!this.box) return;
      const place = this.drawing.getBoundingClientRect();
      const x = (event.clientX - place.left) / place.width * 460;
      const { left, right, low, high } = this.box;
      this.choose(low + (x - left) / (right - left) * (high - low));
    });
    this.drawing.addEventListener("pointerleave", () => { this.at = null; this.say(); });
    this.figure.addEventListener("keydown", event => {
      const points = this.lines.length > 0 ? this.lines[0].points : [];
      if (points.length === 0) return;
      const now = this.index(points, this.at === null ? Infinity : this.at), stride = event.shiftKey ? 10 : 1;
      const moves = { ArrowLeft: now - stride, ArrowRight: now + stride, Home: 0, End: points.length - 1, Escape: points.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this.output.setAttribute("aria-live", "polite");
      const to = Math.max(0, Math.min(points.length - 1, moves[event.key]));
      this.at = to === points.length - 1 ? null : points[to][0];
      this.say();
    });
  }

  index(points, step) {
    let best = 0;
    for (let i = 1; i < points.length; ++i) if (Math.abs(points[i][0] - step) <= Math.abs(points[best][0] - step)) best = i;
    return step === Infinity ? points.length - 1 : best;
  }

  choose(step) {
    const points = this.lines.length > 0 ? this.lines[0].points : [];
    if (points.length === 0) return;
    this.at = points[this.index(points, step)][0];
    this.say();
  }

  // Lines of {name, points: [[step, value]]}; the first one leads.
  show(lines) {
    this.lines = lines.filter(line => line.points.length > 0);
    if (this.at === null) this.output.setAttribute("aria-live", "off");
    const finite = this.lines.flatMap(line => line.points).filter(point => typeof point[1] === "number");
    const isEmpty = finite.length === 0;
    this.drawing.toggleAttribute("hidden", isEmpty);
    this.empty.hidden = !isEmpty;
    this.empty.textContent = this.lines.length > 0 ? "No value is finite." : "No step yet.";
    this.box = null;
    if (!isEmpty) this.draw(finite);
    const others = this.lines.length - 1;
    this.legend.textContent = others < 1 ? "" : `${this.lines[0].name}, and ${others} other${others > 1 ? "s" : ""} in orange`;
    this.say();
  }

  draw(finite) {
    const left = 66, right = 450, top = 8, bottom = 184;
    let low = Infinity, high = -Infinity, least = Infinity, most = -Infinity;
    for (const [step, value] of finite) {
      low = Math.min(low, step);
      high = Math.max(high, step);
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
    if (low === high) { low -= 1; high += 1; }
    const margin = least === most ? Math.abs(least) / 20 || 1 : (most - least) / 20;
    least = least < 0 ? least - margin : Math.max(0, least - margin);
    most += margin;
    this.box = { left, right, top, bottom, low, high };
    const x = step => left + (step - low) / (high - low) * (right - left);
    const y = value => bottom - (value - least) / (most - least) * (bottom - top);
    const parts = [];
    for (const { value, text } of ticks(least, most, 6, 0)) {
      parts.push(drawn("path", { class: "axis", d: `M${left} ${y(value).toFixed(1)}H${right}` }));
      parts.push(drawn("text", { x: left - 4, y: (y(value) + 4).toFixed(1), "text-anchor": "end" }, text));
    }
    for (const { value, text } of ticks(low, high, 5, 1)) {
      // A text that would reach beyond the drawing ends at its tick.
      const anchor = x(value) + 4 * text.length > 456 ? "end" : "middle";
      parts.push(drawn("text", { x: x(value).toFixed(1), y: bottom + 16, "text-anchor": anchor }, text));
    }
    parts.push(drawn("text", { x: right, y: bottom + 32, "text-anchor": "end" }, "step"));
    this.lines.slice().reverse().forEach(line => {
      const isLead = line === this.lines[0];
      let path = "", isOpen = false, count = 0, last = null;
      for (const [step, value] of line.points) {
        if (typeof value !== "number") { isOpen = false; continue; }
        path += `${isOpen ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
        isOpen = true;
        ++count;
        last = [step, value];
      }
      if (count === 1) {
        parts.push(drawn("circle", { class: isLead ? "lead_point" : "other_point", cx: x(last[0]).toFixed(1), cy: y(last[1]).toFixed(1), r: 3 }));
      } else if (count > 1) {
        parts.push(drawn("path", { class: isLead ? "lead" : "other", d: path }));
      }
    });
    this.mark = drawn("path", { class: "mark", d: "" });
    parts.push(this.mark);
    this.drawing.replaceChildren(...parts);
  }

  say() {
    if (this.lines.length === 0) { this.output.textContent = ""; return; }
    const lead = this.lines[0].points;
    const [step, value] = lead[this.index(lead, this.at === null ? Infinity : this.at)];
    let text = `step ${step}: ${number(value)}`;
    const others = this.lines.slice(1).map(line => line.points[this.index(line.points, step)][1]).filter(one => typeof one === "number");
    if (others.length > 0) text += `, the others ${number(Math.min(...others))} to ${number(Math.max(...others))}`;
    if (this.output.textContent !== text) this.output.textContent = text;
    if (this.box && this.mark) {
      const { left, right, top, bottom, low, high } = this.box;
      this.mark.setAttribute("d", this.at === null ? "" : `M${left + (step - low) / (high - low) * (right - left)} ${top}V${bottom}`);
    }
  }
}

const charts = {
  losses: new Chart("Loss", ""),
  speeds: new Chart("Throughput", "rows per second"),
  rates: new Chart("Learning rate", ""),
};
byId("charts").append(...Object.values(charts).map(chart => chart.figure));

function showRanks(state) {
  const words = Object.entries(state.states).map(([word, count]) => `${count} ${word}`).join(", ");
  const leftOut = state.ranks_left_out > 0 ? `; the last ${state.ranks_left_out} are not listed` : "";
  byId("states").textContent = (words || "no rank yet") + leftOut;
  const rows = state.ranks.map(rank => {
    const waits = rank.waits_for === null ? "" : `waits for rank ${rank.waits_for}${rank.waits_in ? ` in ${rank.waits_in}` : ""}`;
    const isSlowest = state.slowest !== null && state.slowest.rank === rank.rank;
    return [rank.rank, rank.state + (rank.detail ? `: ${rank.detail}` : "") + (isSlowest ? " (slowest)" : ""), rank.step || "–", number(rank.loss),
      number(rank.rows_per_second), bytes(rank.resident_bytes), bytes(rank.arena_bytes), waits || rank.doing || "–", rank.host || "–", rank.restarts,
      STATES_OF_TROUBLE.has(rank.state)];
  });
  const numbers = new Set([0, 2, 3, 4, 5, 6, 9]);
  fill(byId("ranks"), JSON.stringify(rows), () => rows.map(cells => {
    const row = element("tr");
    const isBad = cells[cells.length - 1];
    cells.slice(0, -1).forEach((cell, i) => row.append(element("td", String(cell), numbers.has(i) ? "number" : i === 1 && isBad ? "bad" : "")));
    return row;
  }));
}

function showCheckpoints(state) {
  const table = byId("checkpoints");
  byId("no_checkpoints").hidden = state.checkpoints.length > 0;
  table.closest(".frame").hidden = state.checkpoints.length === 0;
  fill(table, JSON.stringify(state.checkpoints), () => state.checkpoints.slice().reverse().map(one => {
    const row = element("tr");
    row.append(element("td", String(one.step), "number"), element("td", one.time), element("td", one.path));
    return row;
  }));
}

function showLog(state) {
  const log = byId("log");
  byId("no_log").hidden = state.log.length > 0;
  log.hidden = state.log.length === 0;
  const text = state.log.map(line => (line.rank === null ? "" : `[${line.rank}] `) + line.text).join("\n");
  if (log.textContent === text) return;
  const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  log.textContent = text;
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function show(state) {
  document.title = (state.step > 0 ? `step ${state.step}, ` : "") + `${state.state} – Tessera`;
  if (byId("program").textContent !== state.program) byId("program").textContent = state.program;
  showFacts(state);
  charts.losses.show(state.losses.map(line => ({ name: `rank ${line.rank}`, points: line.points })));
  charts.speeds.show([{ name: "all ranks", points: state.speeds }]);
  charts.rates.show([{ name: "all ranks", points: state.learning_rates }]);
  showRanks(state);
  showCheckpoints(state);
  showLog(state);
}

// A reader by ear is told what has changed, not that time passes.
function say(text, isBad) {
  const line = byId("connection");
  if (line.textContent !== text) line.textContent = text;
  line.classList.toggle("bad", isBad);
}

let newest = null;  // what was shown last
let heardAt = null;

function sayLost(why) {
  if (newest !== null && OVER.has(newest.state)) return;
  const since = heardAt === null ? "" : ` since ${heardAt.toLocaleTimeString()}; what is below is as it was then`;
  say(`The job does not answer${since}: ${why}. It may have ended. This page asks again.`, true);
}

async function ask() {
  const ends = new AbortController();
  const timer = setTimeout(() => ends.abort(), 5000);
  try {
    const answer = await fetch("state.json", {
      headers: { Authorization: `Bearer ${token}` }, cache: "no-store", credentials: "omit", redirect: "error", signal: ends.signal,
    });
    if (answer.status === 403) { say("The token in this page's address is not that of the job.", true); return false; }
    if (answer.status === 503) { sayLost("too many look at it"); return true; }
    if (!answer.ok) { sayLost(`it says ${answer.status}`); return true; }
    newest = await answer.json();
    heardAt = new Date();
    show(newest);
    const isOver = OVER.has(newest.state);
    say(isOver ? `The job has ended: ${newest.state}${newest.reason ? `, ${newest.reason}` : ""}.` : "Connected; this page asks once a second.",
      isOver && newest.state !== "completed");
    return !isOver;
  } catch (error) {
    sayLost(ends.signal.aborted ? "it has said nothing for 5 s" : "the connection is lost");
    return true;
  } finally {
    clearTimeout(timer);
  }
}

async function watch() {
  while (await ask()) await new Promise(done => setTimeout(done, 1000));
}
watch();

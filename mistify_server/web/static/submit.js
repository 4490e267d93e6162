"use strict";

// The editor: line numbers, errors marked at their lines, the plan, and the started job.
const form = document.getElementById("submit");
const config = document.getElementById("config");
const lines = document.getElementById("lines");
const answer = document.getElementById("answer");
const busy = document.getElementById("busy");
const startOver = document.getElementById("start-over");

// The text is kept in the browser until it has been accepted, for each page and each job on its own.
const DRAFT = `mistify-draft ${location.pathname}${location.search}`;
const drafts = storage();

// Returns the browser's storage; null if its settings block it.
function storage() {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

function numberLines(wrong = new Set()) {
  const count = config.value.split("\n").length;
  lines.replaceChildren(...Array.from({ length: count }, (_, index) => {
    const line = document.createElement("span");
    line.textContent = `${index + 1}\n`;
    if (wrong.has(index + 1)) line.className = "wrong";
    return line;
  }));
  lines.scrollTop = config.scrollTop;
}

function goTo(line) {
  const before = config.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  const end = config.value.indexOf("\n", before);
  config.focus();
  config.setSelectionRange(before, end < 0 ? config.value.length : end);
}

function element(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function showProblems(details) {
  const list = document.createElement("ul");
  for (const problem of details.problems) {
    const item = document.createElement("li");
    const place = element(problem.line ? "a" : "span", problem.line ? `line ${problem.line}` : problem.place);
    if (problem.line) {
      place.href = "#config";
      place.addEventListener("click", (event) => { event.preventDefault(); goTo(problem.line); });
      item.append(place, " ", element("span", problem.place, "place"));
    } else {
      item.append(place);
    }
    item.append(`: got ${problem.value}; expected ${problem.expected}; ${problem.fix}`);
    list.append(item);
  }
  answer.replaceChildren(element("p", details.detail, "problem"), list);
  numberLines(new Set(details.problems.map((problem) => problem.line).filter(Boolean)));
}

// Formats a share as a percentage and an error as a number.
function scoreInterval(metric, interval) {
  if (!interval) return "";
  const isError = ["mse", "mae"].includes(metric) || metric.endsWith("_error");
  const shown = (figure) => isError ? Number(figure.toPrecision(4)) : (100 * figure).toFixed(1);
  return `${shown(interval.middle)}${isError ? "" : " %"} (${shown(interval.low)} to ${shown(interval.high)})`;
}

const AXES = {
  flops: "multiply-adds", params: "parameters", memory_bytes: "memory", size_bytes: "size",
  latency_ms: "latency", energy_mj: "energy",
};

// The costs that goals limit, as shares of the source's: "48 % of the multiply-adds (limit 50 %)".
function limitedCosts(batch, edge) {
  const shown = [];
  for (const axis of Object.keys(edge.budget)) {
    const [quantity, hardware] = axis.split("@");
    const whole = batch.source_costs[axis] ?? batch.source_costs[`${quantity}@${hardware}`] ?? batch.source_costs[quantity];
    if (!whole || edge.costs[axis] === undefined) continue;
    const place = hardware && hardware !== "host" ? ` on ${hardware}` : "";
    const share = (cost) => `${Math.round(100 * cost / whole)} %`;
    shown.push(`${share(edge.costs[axis])} of the ${AXES[quantity] ?? quantity}${place} (limit ${share(edge.budget[axis])})`);
  }
  return [...new Set(shown)].join(", ");
}

function planRows(batch) {
  const rows = [["source", "", "", "", scoreInterval(batch.metric, batch.source_accuracy), batch.source_steps, batch.source_seconds, ""]];
  for (const each of batch.preparations) {
    rows.push([`preparation of ${each.algorithm}`, "source", each.algorithm, "", "", each.steps, each.seconds, ""]);
  }
  for (const edge of batch.edges) {
    rows.push([edge.goals.join(", "), edge.parent ?? "source", edge.algorithm || "-", limitedCosts(batch, edge),
      scoreInterval(batch.metric, edge.accuracy), edge.steps, edge.seconds, edge.warning]);
  }
  return rows;
}

function showPlan(plan) {
  const parts = [element("p", `The job takes about ${Math.ceil(plan.seconds)} s.`)];
  for (const batch of plan.batches) {
    parts.push(element("h2", `Plan of ${batch.model}: about ${Math.ceil(batch.seconds)} s`));
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const title of ["Goals", "From", "Algorithm", "Costs", batch.metric, "Steps", "Seconds", "Remarks"]) {
      head.append(element("th", title));
    }
    const body = table.createTBody();
    for (const [goals, from, algorithm, costs, score, steps, seconds, warning] of planRows(batch)) {
      const row = body.insertRow();
      const figures = [goals, from, algorithm, costs, score, steps.toLocaleString("en"), Math.ceil(seconds), warning];
      for (const figure of figures) row.append(element("td", figure));
    }
    const scroll = element("div", "", "scroll");
    scroll.tabIndex = 0;
    scroll.append(table);
    parts.push(scroll);
  }
  for (const limit of plan.out_of_reach) {
    parts.push(element("p", `${limit.goal}: ${limit.limit} ${limit.value} is out of reach; the nearest is ${limit.nearest}`, "problem"));
  }
  answer.replaceChildren(...parts);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const planned = event.submitter?.value === "plan";
  const buttons = [...form.querySelectorAll("button")];
  buttons.forEach((button) => { button.disabled = true; });
  busy.textContent = planned ? "Planning..." : "Checking...";
  numberLines();
  answer.replaceChildren();
  try {
    const about = new URLSearchParams();
    const name = document.getElementById("job-name")?.value;
    if (name) about.set("name", name);
    for (const tag of document.getElementById("job-tags")?.value.split(" ") ?? []) if (tag) about.append("tag", tag);
    const priority = document.getElementById("job-priority")?.value ?? "normal";
    if (priority !== "normal") about.set("priority", priority);
    const action = about.size ? `${form.dataset.action}?${about}` : form.dataset.action;
    const response = await fetch(planned ? "/v1/plans" : action, {
      method: "POST", body: config.value, headers: { "content-type": "application/json" },
    });
    const content = await response.json();
    if (!response.ok) showProblems(content);
    else if (planned) showPlan(content);
    else {
      drafts?.removeItem(DRAFT);
      location.href = `/jobs/${encodeURIComponent(content.job.id)}`;
    }
  } catch (error) {
    answer.replaceChildren(element("p", `The server cannot be reached (${error.message}); try again.`, "problem"));
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
    busy.textContent = "";
  }
});

function keepDraft() {
  try {
    drafts?.setItem(DRAFT, config.value);
  } catch { // browsers keep only a few megabytes
    drafts.removeItem(DRAFT);
  }
}

function edited() {
  keepDraft();
  startOver.hidden = config.value === config.defaultValue;
  numberLines();
}

startOver.addEventListener("click", () => {
  config.value = config.defaultValue;
  answer.replaceChildren();
  edited();
});
config.addEventListener("input", edited);
config.addEventListener("scroll", () => { lines.scrollTop = config.scrollTop; });
config.value = drafts?.getItem(DRAFT) ?? config.defaultValue;
edited();
